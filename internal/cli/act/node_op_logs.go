// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// NewNodeOpLogsCommand returns the command `node-op logs`.
func NewNodeOpLogsCommand(f *session.Factory) *cobra.Command {
	var nodeArgs []string
	cmd := &cobra.Command{
		Use:   "logs NODEOP",
		Short: "Print the output of a NodeOp on each node",
		Long: "Print the output of a NodeOp on each node, also where it succeeded: the end of its pod's log, or what its status keeps of a\n" +
			"failure when the pod is gone. NODEOP is NAME or NAMESPACE/NAME.",
		Example: "  kubectl skyhook node-op logs kernel-version\n" +
			"  kubectl skyhook node-op logs ops/kernel-version --node worker-1 -o json",
		Args: output.Args("NODEOP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			op, results, err := readResults(cmd.Context(), f, args[0], nodeArgs)
			if err != nil {
				return err
			}
			return f.Print(output.Answer{Value: results, Names: []string{"nodeop/" + op.Name}, Text: func(bool) string { return formatOutputs(results) }})
		},
	}
	f.AddNodeFlag(cmd, &nodeArgs, "only this `node`, by name or regular expression; may be repeated")
	return cmd
}

// PrintOutputs returns what `node-op logs` prints of all nodes.
func PrintOutputs(ctx context.Context, f *session.Factory, name string) (string, error) {
	_, results, err := readResults(ctx, f, name, nil)
	return formatOutputs(results), err
}

// readResults returns how a NodeOp ended on each node, and what it printed there.
func readResults(ctx context.Context, f *session.Factory, name string, nodeArgs []string) (*nodeopv1.NodeOp, []nodeResult, error) {
	o := &nodeOpOptions{Factory: f}
	var err error
	if o.client, err = f.NewClient(); err != nil {
		return nil, nil, err
	}
	if o.nodeOp, err = o.findNodeOp(ctx, name); err != nil {
		return nil, nil, err
	}
	pods, err := o.listPods(ctx)
	if err != nil {
		return nil, nil, err
	}
	byName := map[string]*node.Node{}
	for name := range o.nodeOp.Status.NodeStatuses {
		byName[name] = &node.Node{Name: name}
	}
	for i := range pods { // of a large NodeOp the status does not name all nodes
		byName[pods[i].Spec.NodeName] = &node.Node{Name: pods[i].Spec.NodeName}
	}
	delete(byName, "") // no node yet
	nodes, err := session.SelectNodes(slices.Collect(maps.Values(byName)), nodeArgs)
	if err != nil {
		return nil, nil, fmt.Errorf("nodeop/%s did nothing on it: %w", o.nodeOp.Name, err)
	}
	slices.SortFunc(nodes, func(a, b *node.Node) int { return strings.Compare(a.Name, b.Name) })
	if len(nodes) > maxOutputNodes {
		o.Warn("the output of %d of %d nodes is shown; --node selects others", maxOutputNodes, len(nodes))
		nodes = nodes[:maxOutputNodes]
	}
	results := []nodeResult{}
	for _, n := range nodes {
		results = append(results, newNodeResult(n.Name, o.nodeOp.Status.NodeStatuses[n.Name]))
	}
	o.readOutputs(ctx, pods, results)
	return o.nodeOp, results, nil
}

// findNodeOp finds a NodeOp by its name, in the namespace of -n or in all.
func (o *nodeOpOptions) findNodeOp(ctx context.Context, name string) (*nodeopv1.NodeOp, error) {
	name = strings.TrimPrefix(strings.ToLower(name), "nodeop/")
	list := &nodeopv1.NodeOpList{}
	if err := o.client.List(ctx, list, client.InNamespace(*o.KubeFlags.Namespace)); err != nil {
		if session.IsUnknownKind(err) {
			err = session.ErrNoNodeOps
		}
		return nil, fmt.Errorf("listing NodeOps: %w", err)
	}
	found := slices.DeleteFunc(list.Items, func(op nodeopv1.NodeOp) bool { return name != op.Name && name != op.Namespace+"/"+op.Name })
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("there is no NodeOp %q", name)
	case 1:
		return &found[0], nil
	}
	return nil, fmt.Errorf("%d namespaces have a NodeOp %q: choose one with -n, or name it NAMESPACE/%s", len(found), name, name)
}

// formatOutputs formats the output of each node.
func formatOutputs(results []nodeResult) string {
	var b strings.Builder
	for _, r := range results {
		text := strings.TrimRight(r.Output, "\n")
		if text == "" {
			text = "no output is left: the command printed none, or its pod is gone"
		}
		fmt.Fprintf(&b, "==> %s [%s] <==\n%s\n", r.Node, strings.ToLower(r.Phase), text)
	}
	if len(results) == 0 {
		return "it has not begun on any node\n"
	}
	return b.String()
}
