// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// parallel is how many nodes are written at the same time.
const parallel = 16

// listNodeMetadata lists all nodes, by name. Only their metadata is read: the rest is most of a node, and says nothing of Skyhooks.
func (a *factory) listNodeMetadata(ctx context.Context, c client.Client) ([]*skyhook.Node, error) {
	a.Note("listing the metadata of the nodes")
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	out := make([]*skyhook.Node, len(list.Items))
	for i := range list.Items {
		out[i] = skyhook.ParseNode(&corev1.Node{ObjectMeta: list.Items[i].ObjectMeta}, nil)
	}
	return sortNodes(out), nil
}

// asked refuses an unknown output format before anything is read, and then reads the nodes that the arguments name.
func (a *factory) asked(ctx context.Context, args []string) (client.Client, []*skyhook.Node, error) {
	if _, err := a.CheckFormat(); err != nil {
		return nil, nil, err
	}
	c, err := a.newClient()
	if err != nil {
		return nil, nil, err
	}
	all, err := a.listNodeMetadata(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	all, err = named(all, args)
	return c, all, err
}

// listNodes lists all nodes, by name, with everything.
func (a *factory) listNodes(ctx context.Context, c client.Client) ([]*skyhook.Node, error) {
	a.Note("listing the nodes")
	list := &corev1.NodeList{}
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return parsed(list), nil
}

// parsed are the nodes of a list, by name.
func parsed(list *corev1.NodeList) []*skyhook.Node {
	out := make([]*skyhook.Node, len(list.Items))
	for i := range list.Items {
		out[i] = skyhook.ParseNode(&list.Items[i], nil)
	}
	return sortNodes(out)
}

func sortNodes(nodes []*skyhook.Node) []*skyhook.Node {
	slices.SortFunc(nodes, func(a, b *skyhook.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes
}

// named are the nodes that arguments name: exactly, or by a regular expression for the whole name. An argument that
// names no node is an error. No arguments name all nodes.
func named(nodes []*skyhook.Node, args []string) ([]*skyhook.Node, error) {
	if len(args) == 0 {
		return nodes, nil
	}
	wanted := make(map[string]bool, len(args))
	for _, arg := range args {
		match, err := matcher(arg, nodes)
		if err != nil {
			return nil, err
		}
		hit := false
		for _, n := range nodes {
			if match(n.Name) {
				wanted[n.Name], hit = true, true
			}
		}
		if !hit {
			return nil, fmt.Errorf("no node matches %q", arg)
		}
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(n *skyhook.Node) bool { return !wanted[n.Name] }), nil
}

func matcher(arg string, nodes []*skyhook.Node) (func(string) bool, error) {
	exact := slices.ContainsFunc(nodes, func(n *skyhook.Node) bool { return n.Name == arg })
	if exact || !strings.ContainsAny(arg, `.*+?^${}[]|()\`) {
		return func(name string) bool { return name == arg }, nil
	}
	re, err := regexp.Compile("^(?:" + arg + ")$")
	if err != nil {
		return nil, fmt.Errorf("node %q is neither the name of a node nor a regular expression: %w", arg, err)
	}
	return re.MatchString, nil
}

// names are those of nodes.
func names(nodes []*skyhook.Node) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = n.Name
	}
	return out
}

// holds are all cordons of ours on a node, NodeOps' included.
func holds(n *skyhook.Node) []rollout.Hold {
	out := skyhook.Holds(n)
	if by := n.Annotations[nodeopv1.AnnotationCordonedBy]; by != "" {
		out = append(out, rollout.Hold{Owner: rollout.ParseRef("NodeOp/" + by)})
	}
	return out
}

// edit writes a change to each node, several at a time, provided that the node is still the one it was made for. When it
// is not, the change is made anew from what is there now. A node that cannot be written does not keep the others from
// it. With a dry run nothing is written.
func (a *factory) edit(ctx context.Context, c client.Client, nodes []*skyhook.Node, change func(*skyhook.Node) (skyhook.Edit, error)) error {
	errs := make([]error, len(nodes))
	var group sync.WaitGroup
	seats := make(chan struct{}, parallel)
	for i, n := range nodes {
		seats <- struct{}{}
		group.Go(func() {
			defer func() { <-seats }()
			if err := a.editOne(ctx, c, n, change); err != nil {
				errs[i] = fmt.Errorf("node %s: %w", n.Name, err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func (a *factory) editOne(ctx context.Context, c client.Client, n *skyhook.Node, change func(*skyhook.Node) (skyhook.Edit, error)) error {
	again := false
	return onConflict(func() error {
		if again {
			fresh := &corev1.Node{}
			if err := c.Get(ctx, client.ObjectKey{Name: n.Name}, fresh); err != nil {
				return err
			}
			n = skyhook.ParseNode(fresh, nil)
		}
		again = true
		e, err := change(n)
		if err != nil || e.Empty() || a.DryRun {
			return err
		}
		raw, err := json.Marshal(nodePatch(n, e))
		if err != nil {
			return err
		}
		a.Note("patching node %s: %s", n.Name, raw)
		m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
		m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
		if e.TouchesNode() {
			err = c.Patch(ctx, m, client.RawPatch(types.MergePatchType, raw))
		}
		if err == nil && e.TouchesStatus() {
			err = a.forgetConditions(ctx, c, m, e)
		}
		if apierrors.IsNotFound(err) {
			return errors.New("it is gone")
		}
		return err
	})
}

// forgetConditions removes conditions by their type and leaves all others alone.
func (a *factory) forgetConditions(ctx context.Context, c client.Client, m *metav1.PartialObjectMetadata, e skyhook.Edit) error {
	conditions := []any{}
	for _, t := range e.RemoveConditions {
		conditions = append(conditions, map[string]any{"$patch": "delete", "type": t})
	}
	raw, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err != nil {
		return err
	}
	return c.Status().Patch(ctx, m, client.RawPatch(types.StrategicMergePatchType, raw))
}

// nodePatch is a merge patch for this very version of this very node. It names only what changes: in a merge patch null
// removes all there is.
func nodePatch(n *skyhook.Node, e skyhook.Edit) map[string]any {
	meta := map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion}
	if len(e.Annotations) > 0 {
		meta["annotations"] = e.Annotations
	}
	if len(e.Labels) > 0 {
		meta["labels"] = e.Labels
	}
	patch, spec := map[string]any{"metadata": meta}, map[string]any{}
	if e.Unschedulable != nil {
		spec["unschedulable"] = *e.Unschedulable
	}
	if len(e.RemoveTaints) > 0 {
		spec["taints"] = n.With(skyhook.Edit{RemoveTaints: e.RemoveTaints}).Taints
	}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	return patch
}

// maxNodeRows is how many nodes a table lists before a question, without -o wide.
const maxNodeRows = 20

// nodeTable formats a table with a row for each node: the first ones of many nodes, and all with -o wide.
func (a *factory) nodeTable(header []string, rows [][]string, paint func(string) string) string {
	shown := rows
	if format, err := a.CheckFormat(); err != nil || format != output.Wide {
		shown = rows[:min(len(rows), maxNodeRows)]
	}
	text := output.FormatTable(header, shown, paint)
	if hidden := len(rows) - len(shown); hidden > 0 {
		text += fmt.Sprintf("and %s; -o wide shows all\n", output.Count(hidden, "more node"))
	}
	return text
}
