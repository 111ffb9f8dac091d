// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// ListNodeMetadata lists the metadata of all nodes, by name. The rest is most of a node, and has nothing about Skyhooks.
func ListNodeMetadata(ctx context.Context, f *Factory, c client.Client) ([]*node.Node, error) {
	f.Note("listing the metadata of the nodes")
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	nodes := make([]corev1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i].ObjectMeta = list.Items[i].ObjectMeta
	}
	return ParseNodes(nodes), nil
}

// ListNodes lists all nodes, by name.
func ListNodes(ctx context.Context, f *Factory, c client.Client) ([]*node.Node, error) {
	f.Note("listing the nodes")
	list := &corev1.NodeList{}
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return ParseNodes(list.Items), nil
}

// ParseNodes parses nodes and sorts them by name.
func ParseNodes(nodes []corev1.Node) []*node.Node {
	out := make([]*node.Node, len(nodes))
	for i := range nodes {
		out[i] = node.Parse(&nodes[i], nil)
	}
	slices.SortFunc(out, func(a, b *node.Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// ConnectAndSelect connects to the cluster and lists the metadata of the nodes that the arguments select.
func ConnectAndSelect(ctx context.Context, f *Factory, args []string) (client.Client, []*node.Node, error) {
	c, err := f.NewClient()
	if err != nil {
		return nil, nil, err
	}
	nodes, err := ListNodeMetadata(ctx, f, c)
	if err != nil {
		return nil, nil, err
	}
	nodes, err = SelectNodes(nodes, args)
	return c, nodes, err
}

// SelectNodes returns the nodes that arguments name, exactly or by a regular expression for the whole name. No arguments
// select all nodes. An argument that matches no node is an error.
func SelectNodes(nodes []*node.Node, args []string) ([]*node.Node, error) {
	if len(args) == 0 {
		return nodes, nil
	}
	selected := make(map[string]bool, len(args))
	for _, arg := range args {
		match, err := nodeMatcher(arg, nodes)
		if err != nil {
			return nil, err
		}
		matched := false
		for _, n := range nodes {
			if match(n.Name) {
				selected[n.Name], matched = true, true
			}
		}
		if !matched {
			return nil, fmt.Errorf("no node matches %q", arg)
		}
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(n *node.Node) bool { return !selected[n.Name] }), nil
}

func nodeMatcher(arg string, nodes []*node.Node) (func(string) bool, error) {
	exists := slices.ContainsFunc(nodes, func(n *node.Node) bool { return n.Name == arg })
	if exists || !strings.ContainsAny(arg, `.*+?^${}[]|()\`) {
		return func(name string) bool { return name == arg }, nil
	}
	re, err := regexp.Compile("^(?:" + arg + ")$")
	if err != nil {
		return nil, fmt.Errorf("node %q is neither the name of a node nor a regular expression: %w", arg, err)
	}
	return re.MatchString, nil
}

// NodeNames returns the names of nodes.
func NodeNames(nodes []*node.Node) []string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}
	return names
}

// MaxNodeRows is how many nodes a table lists before a question, without -o wide.
const MaxNodeRows = 20

// FormatNodeTable formats a table with a row for each node: the first nodes only, or all with -o wide.
func (f *Factory) FormatNodeTable(header []string, rows [][]string, paint func(string) string) string {
	shown := rows
	if format, err := f.CheckFormat(); err != nil || format != output.Wide {
		shown = rows[:min(len(rows), MaxNodeRows)]
	}
	text := output.FormatTable(header, shown, paint)
	if hidden := len(rows) - len(shown); hidden > 0 {
		text += fmt.Sprintf("and %s; -o wide shows all\n", output.Count(hidden, "more node"))
	}
	return text
}

// YesOrDash is a cell of a table.
func YesOrDash(yes bool) string {
	if yes {
		return "yes"
	}
	return "-"
}

// Indent puts two blanks before each line.
func Indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}
