// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/pmezard/go-difflib/difflib"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// revisions are the revisions of one Skyhook, the newest first.
type revisions struct {
	skyhook *v1alpha1.Skyhook
	all     []revision
}

// revision is a set of packages that began to roll out.
type revision struct {
	Revision    int64                       `json:"revision"`
	Name        string                      `json:"name"` // of the ControllerRevision
	Current     bool                        `json:"current"`
	Nodes       int                         `json:"nodes"`
	Created     metav1.Time                 `json:"created"`
	ChangeCause string                      `json:"changeCause,omitempty"`
	Packages    map[string]v1alpha1.Package `json:"packages"`
	Images      []revisionImage             `json:"images,omitempty"`

	pins []v1alpha1.ImagePin // that the ControllerRevision has
}

// revisionImage is the digest that is recorded for the image of a package.
type revisionImage struct {
	Package string `json:"package"`
	Image   string `json:"image"` // by digest
	Node    string `json:"pulledFirstBy"`
}

// readRevisions reads the ControllerRevisions of a Skyhook.
func readRevisions(ctx context.Context, f *factory, c client.Client, name string) (*revisions, error) {
	s, err := f.getSkyhook(ctx, c, name)
	if err != nil {
		return nil, err
	}
	f.Note("listing ControllerRevisions in namespace %s", f.namespace())
	list := &appsv1.ControllerRevisionList{}
	if err := c.List(ctx, list, client.InNamespace(f.namespace()), client.MatchingLabels{v1alpha1.LabelRevisionOf: name}); err != nil {
		return nil, fmt.Errorf("listing the ControllerRevisions of Skyhook %s: %w", name, err)
	}
	out := &revisions{skyhook: s}
	for i := range list.Items {
		if !metav1.IsControlledBy(&list.Items[i], s) {
			continue
		}
		one, err := out.newRevision(&list.Items[i])
		if err != nil {
			return nil, err
		}
		out.all = append(out.all, one)
	}
	if len(out.all) == 0 {
		return nil, fmt.Errorf("there are no revisions of Skyhook %s in namespace %s: none has begun to roll out, its operator does not record them, or -n names another operator's namespace", name, f.namespace())
	}
	slices.SortFunc(out.all, func(a, b revision) int { return cmp.Compare(b.Revision, a.Revision) })
	return out, nil
}

func (r *revisions) newRevision(from *appsv1.ControllerRevision) (revision, error) {
	packages, err := skyhook.PackagesOf(from)
	if err != nil {
		return revision{}, err
	}
	of, _ := skyhook.ReadRevision(&from.ObjectMeta)
	out := revision{
		Revision: from.Revision, Name: from.Name, Created: from.CreationTimestamp, ChangeCause: of.Cause, Packages: packages,
		Current: skyhook.HasSamePackages(packages, r.skyhook.Spec.Packages),
	}
	for _, status := range r.skyhook.Status.Revisions {
		if status.Name == from.Name {
			out.Nodes = status.Nodes
		}
	}
	out.pins = skyhook.PinsOf(&from.ObjectMeta)
	for _, pin := range findPins(packages, slices.Concat(out.pins, r.skyhook.Status.ImagePins)) {
		out.Images = append(out.Images, revisionImage{Package: pin.Package, Image: pin.Image + "@" + pin.Digest, Node: pin.Node})
	}
	return out, nil
}

// pinsAfter returns the digests by which nodes pull once the spec has the packages of a revision: see skyhook.Compiled.
func (r *revisions) pinsAfter(to *revision) []v1alpha1.ImagePin {
	known := slices.Clone(r.skyhook.Status.ImagePins)
	for _, one := range r.all {
		known = append(known, one.pins...)
	}
	return findPins(to.Packages, known)
}

// findPins returns the first digest that is known for each package without containerSHA.
func findPins(packages map[string]v1alpha1.Package, known []v1alpha1.ImagePin) []v1alpha1.ImagePin {
	var out []v1alpha1.ImagePin
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		p := packages[name]
		at := slices.IndexFunc(known, func(pin v1alpha1.ImagePin) bool {
			return p.ContainerSHA == "" && pin.Package == name && pin.Version == string(p.Version) && pin.Image == skyhook.RepositoryOf(p.Image)
		})
		if at >= 0 {
			out = append(out, known[at])
		}
	}
	return out
}

// find returns the revision of a number.
func (r *revisions) find(number int64) (*revision, error) {
	var known []string
	for i := range r.all {
		if r.all[i].Revision == number {
			return &r.all[i], nil
		}
		known = append(known, fmt.Sprint(r.all[i].Revision))
	}
	return nil, fmt.Errorf("there is no revision %d of Skyhook %s; it has %s", number, r.skyhook.Name, output.List(known, 20))
}

// findPrevious returns the newest revision that is not what the spec says.
func (r *revisions) findPrevious() (*revision, error) {
	for i := range r.all {
		if !r.all[i].Current {
			return &r.all[i], nil
		}
	}
	return nil, fmt.Errorf("there is no earlier revision of Skyhook %s: its only one is what the spec says", r.skyhook.Name)
}

// diffPackages returns a unified diff between two sets of packages; nothing when they are equal.
func diffPackages(fromName string, from map[string]v1alpha1.Package, toName string, to map[string]v1alpha1.Package) (string, error) {
	a, err := formatPackageSpecs(from)
	if err != nil {
		return "", err
	}
	b, err := formatPackageSpecs(to)
	if err != nil {
		return "", err
	}
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(a), B: difflib.SplitLines(b), FromFile: fromName, ToFile: toName, Context: 3,
	})
	if err != nil {
		return "", fmt.Errorf("comparing packages: %w", err)
	}
	return text, nil
}

func formatPackageSpecs(packages map[string]v1alpha1.Package) (string, error) {
	text, err := yaml.Marshal(map[string]any{"packages": packages})
	if err != nil {
		return "", fmt.Errorf("formatting packages: %w", err)
	}
	return string(text), nil
}
