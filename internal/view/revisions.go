// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/render"
)

// Revisions are the Revisions of one Skyhook, the newest first.
type Revisions struct {
	Skyhook *v1alpha1.Skyhook
	All     []Revision
}

// Revision is a set of packages that began to roll out.
type Revision struct {
	Revision    int64                       `json:"revision"`
	Name        string                      `json:"name"` // of the ControllerRevision
	Current     bool                        `json:"current"`
	Nodes       int                         `json:"nodes"`
	Created     metav1.Time                 `json:"created"`
	ChangeCause string                      `json:"changeCause,omitempty"`
	Packages    map[string]v1alpha1.Package `json:"packages"`
	Images      []revisionImage             `json:"images,omitempty"`
	Changes     []string                    `json:"changes,omitempty"` // since the revision before it

	pins []v1alpha1.ImagePin // that the ControllerRevision has
}

// revisionImage is the digest that is recorded for the image of a package.
type revisionImage struct {
	Package string `json:"package"`
	Image   string `json:"image"` // by digest
	Node    string `json:"pulledFirstBy"`
}

// NewRevision reads a revision from the object that keeps it.
func (r *Revisions) NewRevision(from *appsv1.ControllerRevision) (Revision, error) {
	packages, err := render.PackagesOf(from)
	if err != nil {
		return Revision{}, err
	}
	of, _ := plan.ReadRevision(&from.ObjectMeta)
	out := Revision{
		Revision: from.Revision, Name: from.Name, Created: from.CreationTimestamp, ChangeCause: of.Cause, Packages: packages,
		Current: skyhook.HasSamePackages(packages, r.Skyhook.Spec.Packages),
	}
	for _, status := range r.Skyhook.Status.Revisions {
		if status.Name == from.Name {
			out.Nodes = int(status.Nodes)
		}
	}
	out.pins = plan.PinsOf(&from.ObjectMeta)
	for _, pin := range findPins(packages, slices.Concat(out.pins, r.Skyhook.Status.Internal.ImagePins)) {
		out.Images = append(out.Images, revisionImage{Package: pin.Package, Image: pin.Image + "@" + pin.Digest, Node: pin.Node})
	}
	return out, nil
}

// CompareAll notes of each revision how it differs from the one before it.
func (r *Revisions) CompareAll() {
	for i := range len(r.All) - 1 {
		r.All[i].Changes = listChanges(r.All[i+1].Packages, r.All[i].Packages)
	}
}

// listChanges says which packages were added or removed, and which fields of others have changed.
func listChanges(before, after map[string]v1alpha1.Package) []string {
	var out []string
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		from, had := before[name]
		to, has := after[name]
		switch fields := changedFields(from, to); {
		case !had:
			out = append(out, name+" added")
		case !has:
			out = append(out, name+" removed")
		case from.Version != to.Version:
			fields[slices.Index(fields, "version")] = fmt.Sprintf("%s to %s", from.Version, to.Version)
			fallthrough
		case len(fields) > 0:
			out = append(out, name+" "+strings.Join(fields, ", "))
		}
	}
	return out
}

// changedFields lists the fields of a package that differ, as they are written in a Skyhook.
func changedFields(from, to v1alpha1.Package) (out []string) {
	a, b := fieldsOf(from), fieldsOf(to)
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if string(a[name]) != string(b[name]) {
			out = append(out, name)
		}
		delete(a, name)
	}
	return append(out, slices.Sorted(maps.Keys(a))...)
}

func fieldsOf(p v1alpha1.Package) (out map[string]json.RawMessage) {
	text, _ := json.Marshal(p) // the API server stored it as JSON
	_ = json.Unmarshal(text, &out)
	return out
}

// PinsAfter returns the digests by which nodes pull once the spec has the packages of a revision: see skyhook.Compiled.
func (r *Revisions) PinsAfter(to *Revision) []v1alpha1.ImagePin {
	known := slices.Clone(r.Skyhook.Status.Internal.ImagePins)
	for _, one := range r.All {
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

// Find returns the revision of a number.
func (r *Revisions) Find(number int64) (*Revision, error) {
	var known []string
	for i := range r.All {
		if r.All[i].Revision == number {
			return &r.All[i], nil
		}
		known = append(known, fmt.Sprint(r.All[i].Revision))
	}
	return nil, fmt.Errorf("there is no revision %d of Skyhook %s; it has %s", number, r.Skyhook.Name, output.List(known, 20))
}

// findPrevious returns the newest revision that is not what the spec says.
func (r *Revisions) findPrevious() (*Revision, error) {
	for i := range r.All {
		if !r.All[i].Current {
			return &r.All[i], nil
		}
	}
	return nil, fmt.Errorf("there is no earlier revision of Skyhook %s: its only one is what the spec says", r.Skyhook.Name)
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
	_, text, _ := strings.Cut(string(diff.Diff(fromName, []byte(a), toName, []byte(b))), "\n") // after the line "diff"
	return text, nil
}

func formatPackageSpecs(packages map[string]v1alpha1.Package) (string, error) {
	text, err := yaml.Marshal(map[string]any{"packages": packages})
	if err != nil {
		return "", fmt.Errorf("formatting packages: %w", err)
	}
	return string(text), nil
}

// Names are the revisions, for -o name.
func (r *Revisions) Names() []string {
	var names []string
	for _, one := range r.All {
		names = append(names, one.Name)
	}
	return output.WithKind("controllerrevision.apps", names...)
}

// ListPackages returns the packages as name:version.
func (r *Revision) ListPackages() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.Packages)) {
		out = append(out, name+":"+string(r.Packages[name].Version))
	}
	return output.List(out, 5)
}

// ListDigests returns the digests that were recorded as package@digest, shortened unless there is room.
func (r *Revision) ListDigests(wide bool) string {
	var out []string
	for _, image := range r.Images {
		_, digest, _ := strings.Cut(image.Image, "@")
		if !wide {
			digest = digest[:min(len(digest), len("sha256:")+12)]
		}
		out = append(out, image.Package+"@"+digest)
	}
	if len(out) == 0 {
		return "<none>"
	}
	return output.List(out, 5)
}

// Format shows a whole revision.
func (r *Revision) Format(of string) (string, error) {
	packages, err := formatPackageSpecs(r.Packages)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "Skyhook %s, revision %d, on %s", of, r.Revision, output.Count(r.Nodes, "node"))
	if r.Current {
		out.WriteString(", is what the spec says")
	}
	out.WriteString("\n")
	if r.ChangeCause != "" {
		fmt.Fprintf(&out, "Change cause: %s\n", r.ChangeCause)
	}
	for _, image := range r.Images {
		fmt.Fprintf(&out, "Image of package %s: %s, pulled first by node %s\n", image.Package, image.Image, image.Node)
	}
	return out.String() + "\n" + packages, nil
}

// Choose returns the revision of a number, or the newest one that differs from the spec.
func (r *Revisions) Choose(number int64) (*Revision, error) {
	if number != 0 {
		return r.Find(number)
	}
	return r.findPrevious()
}

// DiffTo returns what changes from the spec to a revision.
func (r *Revisions) DiffTo(to *Revision) (string, error) {
	return diffPackages("the spec", render.WithoutUninstallRequests(r.Skyhook.Spec.Packages), fmt.Sprintf("revision %d", to.Revision), to.Packages)
}
