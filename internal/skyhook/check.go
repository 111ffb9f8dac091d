// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// maxName limits a name so that it fits into an annotation, whose name has 63 characters, after the longest prefix.
const maxName = 53

// maxConfig is the maximum size of a ConfigMap, less space for the package itself.
const maxConfig = 1<<20 - 64<<10

// maxEnv is the maximum size of a package's environment: a pod has it twice, and must be smaller than 1.5 MiB.
const maxEnv = 512 << 10

// checkSpec returns the problems of a Skyhook, worst first. The API server refuses most of them; checkSpec also covers objects
// that are older than its rules, and rules about several objects.
func checkSpec(in *plan.Input, defs map[string]*plan.Definition) []plan.Problem {
	s := in.Skyhook
	var out []plan.Problem
	refuse := func(field, format string, args ...any) {
		out = append(out, plan.Problem{Reason: rollout.ReasonInvalidSpec, Field: field, Text: fmt.Sprintf(format, args...), Refuses: true})
	}
	if len(s.Name) > maxName {
		refuse("metadata.name", "metadata.name has %d characters: choose a name of at most %d, because it becomes part of annotations on nodes", len(s.Name), maxName)
	}
	dependsOn := func(name string) []string { return defs[name].DependenciesAmong(defs) }
	if cycle := plan.WalkDependencies(plan.SortedNames(defs), dependsOn, func(string, []string) {}); cycle != nil {
		refuse("packages", "packages depend on each other in a circle: %s: remove one of these dependencies", strings.Join(cycle, " → "))
	}
	checkSelectors(in, refuse)
	for _, name := range plan.SortedNames(defs) {
		checkPackage(defs[name], defs, refuse)
	}
	checkClaims(in, defs, refuse)
	if b := s.Spec.InterruptionBudget; b.Percent != nil && b.Count != nil {
		refuse("interruptionBudget", "interruptionBudget has both percent and count: keep one of them")
	}
	if in.PolicyMissing {
		out = append(out, plan.Problem{Reason: rollout.ReasonPolicyMissing, Field: "deploymentPolicy", Refuses: true,
			Text: policy.DescribeMissing(plan.PolicyName(s, in.Config))})
	}
	if s.Spec.AutoTaintNewNodes && !s.Spec.RuntimeRequired {
		out = append(out, plan.Problem{Reason: rollout.ReasonInvalidSpec, Field: "autoTaintNewNodes",
			Text: "autoTaintNewNodes has no effect without runtimeRequired"})
	}
	if s.Spec.RuntimeRequiredCordonAfter && !s.Spec.RuntimeRequired {
		out = append(out, plan.Problem{Reason: rollout.ReasonInvalidSpec, Field: "runtimeRequiredCordonAfter",
			Text: "runtimeRequiredCordonAfter has no effect without runtimeRequired"})
	}
	return append(out, findIgnoredTags(s, defs)...)
}

// findIgnoredTags returns a problem for each image that has another tag than the one that is pulled. The Skyhook is accepted,
// because the predecessors removed such tags silently.
func findIgnoredTags(s *v1alpha1.Skyhook, defs map[string]*plan.Definition) []plan.Problem {
	var out []plan.Problem
	for _, name := range plan.SortedNames(defs) {
		written, _, _ := strings.Cut(s.Spec.Packages[name].Image, "@")
		p := defs[name].Package
		tag, hasTag := strings.CutPrefix(written, p.Image+":")
		if !hasTag || tag == string(p.Version) || tag == plan.VersionTag(p.Version) {
			continue
		}
		out = append(out, plan.Problem{Reason: rollout.ReasonInvalidSpec, Field: "packages." + name + ".image",
			Text: fmt.Sprintf("image of package %s has the tag %q, which is ignored: %s is pulled; remove the tag", name, tag, plan.ImageOf(p))})
	}
	return out
}

type refusal func(field, format string, args ...any)

func checkSelectors(in *plan.Input, refuse refusal) {
	s := in.Skyhook
	if _, err := metav1.LabelSelectorAsSelector(s.Spec.NodeSelectors.Kubernetes()); err != nil {
		refuse("nodeSelectors", "nodeSelectors cannot be used: %s", node.Truncate(err.Error(), 200))
	}
	if _, err := Protected(s); err != nil {
		refuse("podNonInterruptLabels", "podNonInterruptLabels cannot be used: %s", node.Truncate(errors.Unwrap(err).Error(), 200))
	}
	if _, err := LeavingPods(s); err != nil {
		refuse("drainConfig", "%s: correct the selector", node.Truncate(err.Error(), 200))
	}
	if p := s.Spec.Proof; p != nil {
		for _, text := range policy.FindObjectProblems("proof.objects", p.Objects, true) {
			refuse("proof", "%s", text)
		}
	}
	for _, text := range policy.FindMarkProblems(plan.Marks(s, in.Policy), s.Spec.NodeSelectors.Kubernetes()) {
		refuse("nodeMarks", "%s", text)
	}
	if in.Policy == nil {
		return
	}
	for _, text := range policy.FindProblems(in.Policy, in.Now) {
		refuse("deploymentPolicy", "%s", text)
	}
}

func checkPackage(d *plan.Definition, defs map[string]*plan.Definition, refuse refusal) {
	p, field := d.Package, "packages."+d.Package.Name
	if _, err := pack.ParseVersion(string(p.Version)); err != nil {
		refuse(field+".version", "version of package %s cannot be used: %v", p.Name, err)
	}
	if len(plan.LabelValue(p.Name+"-"+string(p.Version))) < len(p.Name)+1+len(p.Version) {
		refuse(field, "package %s with version %s makes a label of more than 63 characters: use a shorter name or version", p.Name, p.Version)
	}
	for _, dep := range plan.SortedNames(p.DependsOn) {
		switch other := defs[dep]; {
		case other == nil:
			refuse(field+".dependsOn", "package %s depends on %s, which is not in packages: add it, or remove the dependency", p.Name, dep)
		case other.Package.Version != p.DependsOn[dep]:
			refuse(field+".dependsOn", "package %s depends on %s %s, and packages has %s: repeat the version exactly", p.Name, dep, p.DependsOn[dep], other.Package.Version)
		}
	}
	for _, pattern := range plan.SortedNames(p.ConfigInterrupts) {
		if _, err := path.Match(pattern, ""); err != nil {
			refuse(field+".configInterrupts", "configInterrupts of package %s has the pattern %q, which cannot be used: close its bracket", p.Name, pattern)
			continue
		}
		if !slices.ContainsFunc(plan.SortedNames(d.Files), func(key string) bool { return plan.KeyMatches(pattern, key) }) {
			refuse(field+".configInterrupts", "configInterrupts of package %s has %q, which matches no key of its configMap: use a key, or a pattern with * that matches one", p.Name, pattern)
		}
	}
	checkSizes(d, field, refuse)
}

// checkSizes finds a package that its ConfigMaps or its pods cannot carry.
func checkSizes(d *plan.Definition, field string, refuse refusal) {
	p := d.Package
	config, env := 0, 0
	for key, value := range d.Files {
		config += len(key) + len(value)
	}
	if len(p.Env) > 0 {
		env = len(node.EncodeJSON(p.Env))
	}
	switch {
	case config > maxConfig:
		refuse(field+".configMap", "configMap of package %s has %d bytes, and %d is the most a ConfigMap can carry beside the package: move large files into the image", p.Name, config, maxConfig)
	case env > maxEnv:
		refuse(field+".env", "env of package %s has %d bytes, and %d is the most its pods can carry: move large values into configMap or into the image", p.Name, env, maxEnv)
	case config+env > maxConfig:
		refuse(field+".env", "env and configMap of package %s have %d bytes together, and %d is the most a ConfigMap can carry: move large files into the image", p.Name, config+env, maxConfig)
	}
}

// Claims lists the names of the package ConfigMaps of a Skyhook, for Input.Claims of later Skyhooks.
func Claims(s *v1alpha1.Skyhook) []string {
	var out []string
	for name, p := range s.Spec.Packages {
		out = append(out, plan.ConfigMapName(s.Name, name, string(p.Version)))
	}
	slices.Sort(out)
	return out
}

// checkClaims finds packages that would share a ConfigMap: its documented name joins three names with dashes, and
// these may contain dashes themselves.
func checkClaims(in *plan.Input, defs map[string]*plan.Definition, refuse refusal) {
	own := map[string]string{}
	for _, name := range plan.SortedNames(defs) {
		claim := plan.ConfigMapName(in.Skyhook.Name, name, string(defs[name].Package.Version))
		if owner := in.Claims[claim]; owner != "" && owner != in.Skyhook.Name {
			refuse("packages."+name, "package %s needs the ConfigMap %s, which Skyhook %s uses already: rename the package or the Skyhook", name, claim, owner)
		}
		if other := own[claim]; other != "" {
			refuse("packages."+name, "packages %s and %s need the same ConfigMap %s: rename one of them", other, name, claim)
		}
		own[claim] = name
	}
}

// Protected selects the pods that are never evicted; nil when there is no such selector.
func Protected(s *v1alpha1.Skyhook) (labels.Selector, error) {
	return policy.ParsePodSelector("podNonInterruptLabels", &s.Spec.PodNonInterruptLabels)
}

// LeavingPods selects the pods that have to leave a node; nil for all.
func LeavingPods(s *v1alpha1.Skyhook) (labels.Selector, error) {
	if s.Spec.DrainConfig == nil {
		return nil, nil
	}
	return policy.ParsePodSelector("drainConfig.podSelector", s.Spec.DrainConfig.PodSelector)
}
