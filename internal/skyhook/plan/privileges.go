// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// PrivilegesOf returns what the pod of a step may do on a node: what the Skyhook says, or else what config.json of the package declares;
// none mean everything. An interrupt runs no step of a package.
func (f *Facts) PrivilegesOf(st *Step, rec *node.SkyhookRecord, n *node.Node) pack.Privileges {
	p := pack.Privileges(st.Definition.Package.Privileges)
	if len(p) == 0 && n.MountsReadOnly {
		p = f.DeclaredOn(rec, st)
	}
	switch {
	case p.IsFull():
		return nil
	case st.IsInterrupt():
		return pack.Privileges{pack.PrivilegeReboot}
	}
	return p
}

// DeclaredOn returns what config.json of a step's package declares: what it said on this node, or when it was installed there, or its image on
// another node.
func (f *Facts) DeclaredOn(rec *node.SkyhookRecord, st *Step) pack.Privileges {
	a := rec.Preflight[st.Key]
	if a.Hash == st.Definition.Hash && a.HasPrivileges() {
		return a.Privileges
	}
	if p := rec.Packages[st.Key]; p != nil && len(p.Privileges) > 0 {
		return p.Privileges
	}
	if p, isKnown := f.Declared[ImageOf(st.Definition.Package)]; isKnown || !rec.Admitted || f.maxPrivileges() == v1alpha1.PrivilegesFull {
		return p
	}
	// Nobody is asked during a visit. A version that follows another one then gets what that one declared, because everything is forbidden.
	var before pack.Privileges
	for _, key := range SortedNames(rec.Packages) {
		if name, _, _ := CutKey(key); name == st.Name {
			before = rec.Packages[key].Privileges
		}
	}
	return before
}

func (f *Facts) maxPrivileges() v1alpha1.PrivilegeClass {
	if f.Policy == nil {
		return v1alpha1.PrivilegesFull
	}
	return cmp.Or(f.Policy.Spec.MaxPrivileges, v1alpha1.PrivilegesFull)
}

// FindForbidden returns why nothing may begin on a node: a pod of a step would be allowed more than the policy permits, or the node cannot
// make it one that may do less than everything. What is still to be asked is not judged.
func (f *Facts) FindForbidden(t *Target) *rollout.Why {
	most := f.maxPrivileges()
	asked := f.PackagesToAsk(t)
	for _, id := range SortedNames(t.Steps) {
		st := t.Steps[id]
		p, class := st.Definition.Package.Privileges, f.PrivilegesOf(st, &t.Record, t.Node).Class()
		_, isAsked := asked[st.Key]
		isOpen := isAsked && t.Record.Preflight[st.Key].Hash != st.Definition.Hash
		begun := t.Record.Packages[st.Key]
		text := ""
		switch {
		case t.Record.Admitted && begun != nil && begun.Goal != "" && begun.Hash == st.Definition.Hash:
			continue
		case class != pack.PrivilegeFull && !t.Node.MountsReadOnly:
			text = fmt.Sprintf("package %s has privileges, and the node's container runtime does not mount the host read-only with all that is mounted below: "+
				"update the runtime, or remove privileges of the package", st.Name)
		case st.IsInterrupt() || isOpen || pack.CompareClasses(class, strings.ToLower(string(most))) <= 0:
			continue
		case len(p) == 0 && class == pack.PrivilegeFull:
			text = fmt.Sprintf("maxPrivileges of policy %s is %s, and package %s has not declared what it needs, which counts as full", f.Policy.Name, most, st.Name)
		default:
			text = fmt.Sprintf("maxPrivileges of policy %s is %s, and package %s needs %s", f.Policy.Name, most, st.Name, class)
		}
		return &rollout.Why{Reason: rollout.ReasonPrivileges, Text: text, About: "Package " + st.Name}
	}
	return nil
}
