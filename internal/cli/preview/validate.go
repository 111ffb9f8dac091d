// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package preview

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
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/options"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// NewValidateCommand returns the command `validate`.
func NewValidateCommand(f *session.Factory) *cobra.Command {
	var files []string
	strict := false
	cmd := &cobra.Command{
		Use:   "validate -f FILE…",
		Short: "Validate Skyhooks, policies and NodeOps in files",
		Long: "Validate Skyhooks, DeploymentPolicies, NodeOps and NodeOpUpgrades in files, without a cluster: unknown fields, the schema\n" +
			"and the rules of the CRDs, dependency cycles, patterns that match no key, and policies that are in none of the files.\n" +
			"See package validate for packages.\n\n" +
			"A policy that is not among the files is a warning, because it may be in the cluster; --strict treats warnings as errors.",
		Example: "  kubectl skyhook validate -f skyhook.yaml -f policy.yaml\n" +
			"  kubectl skyhook validate -f deploy/ --strict -o json",
		Args: output.Args(),
		RunE: func(*cobra.Command, []string) error { return runValidate(f, files, strict) },
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "validate this `FILE`, all files of a folder, or standard input for -; may be repeated")
	cmd.Flags().BoolVar(&strict, "strict", false, "treat warnings as errors")
	_ = cmd.MarkFlagRequired("filename")
	return cmd
}

// validatedObject is one object with its problems.
type validatedObject struct {
	File     string   `json:"file"`
	Object   string   `json:"object"`
	Errors   []string `json:"errors"`
	Warnings []string `json:"warnings"`
}

func runValidate(f *session.Factory, files []string, strict bool) error {
	objects, err := session.ReadManifests(f, files)
	if err != nil {
		return err
	}
	all := newObjectValidator(objects).validate()
	if len(all) == 0 {
		return errors.New("none of these files has a Skyhook, DeploymentPolicy, NodeOp or NodeOpUpgrade")
	}
	hasErrors := false
	var names []string
	for i := range all {
		o := &all[i]
		if strict {
			o.Errors, o.Warnings = append(o.Errors, o.Warnings...), []string{}
		}
		hasErrors = hasErrors || len(o.Errors) > 0
		names = append(names, strings.ToLower(strings.Replace(o.Object, " ", "/", 1)))
	}
	if err := f.Print(output.Answer{Value: all, Names: names, Text: func(bool) string { return formatValidation(all) }}); err != nil {
		return err
	}
	if hasErrors {
		return output.ProblemsFound()
	}
	return nil
}

func formatValidation(all []validatedObject) string {
	var b strings.Builder
	invalid, warnings := 0, 0
	for _, o := range all {
		for _, e := range o.Errors {
			fmt.Fprintf(&b, "%s: %s: error: %s\n", o.File, o.Object, e)
		}
		for _, w := range o.Warnings {
			fmt.Fprintf(&b, "%s: %s: warning: %s\n", o.File, o.Object, w)
		}
		if len(o.Errors) > 0 {
			invalid++
		}
		warnings += len(o.Warnings)
	}
	subject := "1 object is"
	if len(all) != 1 {
		subject = fmt.Sprintf("%d objects are", len(all))
	}
	switch {
	case invalid > 0:
		fmt.Fprintf(&b, "%d of %s not valid\n", invalid, subject)
	case warnings > 0:
		fmt.Fprintf(&b, "%s valid, with %s\n", subject, output.Count(warnings, "warning"))
	default:
		fmt.Fprintf(&b, "%s valid\n", subject)
	}
	return b.String()
}

// objectValidator validates the objects of files together.
type objectValidator struct {
	objects  []*manifest.Object
	policies map[string]*v1alpha1.DeploymentPolicy // valid ones
	files    map[string]string                     // by object
	claims   map[string]string                     // names of ConfigMaps, by Skyhook
}

func newObjectValidator(objects []*manifest.Object) *objectValidator {
	v := &objectValidator{objects: objects, policies: map[string]*v1alpha1.DeploymentPolicy{}, files: map[string]string{}, claims: map[string]string{}}
	for _, o := range objects {
		if !o.IsKnown || o.GetKind() != "DeploymentPolicy" || len(o.Problems) > 0 {
			continue
		}
		p := &v1alpha1.DeploymentPolicy{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, p) == nil {
			v.policies[p.Name] = p
		}
	}
	return v
}

func (v *objectValidator) validate() []validatedObject {
	var all []validatedObject
	for _, o := range v.objects {
		if !o.IsKnown {
			continue
		}
		result := validatedObject{File: o.File, Object: o.Name(), Errors: append([]string{}, o.Problems...), Warnings: []string{}}
		for _, field := range o.UnknownFields {
			result.Errors = append(result.Errors, o.DescribeUnknown(field))
		}
		if file, isDuplicate := v.files[o.Name()]; isDuplicate {
			result.Errors = append(result.Errors, "it is in "+file+" already")
		}
		v.files[o.Name()] = o.File
		if len(o.Problems) == 0 {
			v.validateReferences(o, &result)
		}
		all = append(all, result)
	}
	return all
}

// validateReferences checks what the API server does not check: the policy, and what the compiler of Skyhooks finds.
func (v *objectValidator) validateReferences(o *manifest.Object, result *validatedObject) {
	policyName, _, _ := unstructured.NestedString(o.Object, "spec", "deploymentPolicy")
	named, isValid := v.policies[policyName]
	if policyName != "" && !isValid && !v.hasPolicy(policyName) {
		result.Warnings = append(result.Warnings, "deploymentPolicy "+policyName+" is in none of the files")
	}
	if p := v.policies[o.GetName()]; o.GetKind() == policy.Kind && p != nil {
		result.Errors = append(result.Errors, policy.FindProblems(p, time.Unix(0, 0))...)
	}
	if o.GetKind() != "Skyhook" {
		return
	}
	s := &v1alpha1.Skyhook{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, s); err != nil {
		result.Errors = append(result.Errors, err.Error())
		return
	}
	compiled := skyhook.Compile(&plan.Input{Skyhook: s, Policy: named, Claims: v.claims, Config: options.Defaults().Skyhook(""), Now: time.Unix(0, 0)})
	for _, name := range skyhook.Claims(s) {
		if _, isClaimed := v.claims[name]; !isClaimed {
			v.claims[name] = s.Name
		}
	}
	result.Warnings = append(result.Warnings, skyhook.Warnings(s)...)
	for _, p := range compiled.Problems {
		switch {
		case p.Reason == rollout.ReasonPolicyMissing: // reported above
		case p.Refuses:
			result.Errors = append(result.Errors, p.Text)
		default:
			result.Warnings = append(result.Warnings, p.Text)
		}
	}
}

// hasPolicy reports whether the files have a policy, valid or not.
func (v *objectValidator) hasPolicy(name string) bool {
	return slices.ContainsFunc(v.objects, func(o *manifest.Object) bool { return o.GetKind() == "DeploymentPolicy" && o.GetName() == name })
}
