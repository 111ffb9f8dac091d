// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/manifest"
	"github.com/skyhook-k8s/skyhook/internal/options"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

func (a *factory) validateFilesCommand() *cobra.Command {
	var files []string
	strict := false
	cmd := &cobra.Command{
		Use:   "validate -f FILE…",
		Short: "Say everything that is wrong with Skyhooks, policies and NodeOps in files",
		Long: "Say everything that is wrong with Skyhooks, DeploymentPolicies, NodeOps and NodeOpUpgrades in files, without a cluster:\n" +
			"unknown fields, the schema, the rules of the CRDs, circles of dependencies, patterns that match no key, and policies\n" +
			"that are in none of the files. See package validate for packages.\n\n" +
			"Exit code 0 means valid, 1 not valid, 2 that it could not be looked at. A policy that is not among the files is a\n" +
			"warning, because it may be in the cluster; --strict makes warnings count as errors.",
		Example: "  kubectl skyhook validate -f skyhook.yaml -f policy.yaml\n" +
			"  kubectl skyhook validate -f deploy/ --strict -o json",
		Args: output.Args(),
		RunE: func(*cobra.Command, []string) error { return a.validateFiles(files, strict) },
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "look at this `FILE`, at all files of a folder, or at standard input for -; may be repeated")
	cmd.Flags().BoolVar(&strict, "strict", false, "treat warnings as errors")
	_ = cmd.MarkFlagRequired("filename")
	return cmd
}

// judged is one object and what is wrong with it.
type judged struct {
	File     string   `json:"file"`
	Object   string   `json:"object"`
	Errors   []string `json:"errors"`
	Warnings []string `json:"warnings"`
}

func (a *factory) validateFiles(files []string, strict bool) error {
	if _, err := a.CheckFormat(); err != nil {
		return output.NotChecked(err)
	}
	objects, err := a.readFiles(files)
	if err != nil {
		return output.NotChecked(err)
	}
	var ours []*manifest.Object
	for _, o := range objects {
		if o.Known {
			ours = append(ours, o)
		}
	}
	if len(ours) == 0 {
		return output.NotChecked(errors.New("none of these files has a Skyhook, DeploymentPolicy, NodeOp or NodeOpUpgrade"))
	}
	all, wrong := judgeAll(ours, objects), 0
	for i := range all {
		if strict {
			all[i].Errors, all[i].Warnings = append(all[i].Errors, all[i].Warnings...), []string{}
		}
		wrong += len(all[i].Errors)
	}
	var names []string
	for _, j := range all {
		names = append(names, strings.ToLower(strings.Replace(j.Object, " ", "/", 1)))
	}
	if err := a.Print(output.Answer{Value: all, Names: names, Text: func(bool) string { return judgedText(all) }}); err != nil {
		return output.NotChecked(err)
	}
	if wrong > 0 {
		return output.ProblemsFound()
	}
	return nil
}

func judgedText(all []judged) string {
	var b strings.Builder
	bad, warned := 0, 0
	for _, j := range all {
		for _, e := range j.Errors {
			fmt.Fprintf(&b, "%s: %s: error: %s\n", j.File, j.Object, e)
		}
		for _, w := range j.Warnings {
			fmt.Fprintf(&b, "%s: %s: warning: %s\n", j.File, j.Object, w)
		}
		bad += boolean(len(j.Errors) > 0)
		warned += len(j.Warnings)
	}
	switch {
	case bad > 0:
		fmt.Fprintf(&b, "%d of %s not valid\n", bad, are(len(all)))
	case warned > 0:
		fmt.Fprintf(&b, "%s valid, with %s\n", are(len(all)), output.Count(warned, "warning"))
	default:
		fmt.Fprintf(&b, "%s valid\n", are(len(all)))
	}
	return b.String()
}

func are(n int) string {
	if n == 1 {
		return "1 object is"
	}
	return fmt.Sprintf("%d objects are", n)
}

// judgeAll adds to what the rules say of each object what needs all of them.
func judgeAll(ours, objects []*manifest.Object) []judged {
	policies, twice := map[string]*v1alpha1.DeploymentPolicy{}, map[string]string{}
	for _, o := range ours {
		if o.GetKind() == "DeploymentPolicy" && len(o.Wrong) == 0 {
			p := &v1alpha1.DeploymentPolicy{}
			if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, p) == nil {
				policies[p.Name] = p
			}
		}
	}
	claims := map[string]string{}
	var out []judged
	for _, o := range ours {
		j := judged{File: o.File, Object: o.Name(), Errors: slices.Clone(o.Wrong), Warnings: []string{}}
		for _, field := range o.Unknown {
			j.Errors = append(j.Errors, field+" is unknown, and the API server would drop it")
		}
		if other, again := twice[o.Name()]; again {
			j.Errors = append(j.Errors, "it is in "+other+" already")
		}
		twice[o.Name()] = o.File
		if len(o.Wrong) == 0 {
			j.compile(o, policies, claims, objects)
		}
		if j.Errors == nil {
			j.Errors = []string{}
		}
		out = append(out, j)
	}
	return out
}

// compile finds what the front end says of an object that the API server would take.
func (j *judged) compile(o *manifest.Object, policies map[string]*v1alpha1.DeploymentPolicy, claims map[string]string, objects []*manifest.Object) {
	named, _, _ := unstructured.NestedString(o.Object, "spec", "deploymentPolicy")
	policy, has := policies[named]
	if named != "" && !has && !among(objects, named) {
		j.Warnings = append(j.Warnings, "deploymentPolicy "+named+" is in none of the files")
	}
	if o.GetKind() != "Skyhook" {
		return
	}
	s := &v1alpha1.Skyhook{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, s); err != nil {
		j.Errors = append(j.Errors, err.Error())
		return
	}
	c := skyhook.Compile(&skyhook.Input{Skyhook: s, Policy: policy, Claims: claims, Config: options.Defaults().Skyhook(""), Now: time.Unix(0, 0)})
	for _, name := range skyhook.Claims(s) {
		if _, taken := claims[name]; !taken {
			claims[name] = s.Name
		}
	}
	for _, p := range c.Problems {
		switch {
		case p.Reason == rollout.ReasonPolicyMissing: // said above
		case p.Refuses:
			j.Errors = append(j.Errors, p.Text)
		default:
			j.Warnings = append(j.Warnings, p.Text)
		}
	}
}

// among says that a policy is among the objects, whatever is wrong with it.
func among(objects []*manifest.Object, policy string) bool {
	return slices.ContainsFunc(objects, func(o *manifest.Object) bool { return o.GetKind() == "DeploymentPolicy" && o.GetName() == policy })
}
