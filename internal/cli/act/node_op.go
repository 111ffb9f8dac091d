// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// nodeOpOptions are the flags of node reboot, drain and run.
type nodeOpOptions struct {
	*session.Factory
	verb          string
	sure          session.Confirmation
	image         string
	concurrency   int32
	stopOnFailure bool
	drain         bool
	uncordon      bool
	reboot        bool
	wait          bool
	keep          bool
	timeout       time.Duration
	nodeArgs      []string
	command       []string

	client client.Client
	nodeOp *nodeopv1.NodeOp
}

// NewNodeRebootCommand returns the command `node reboot`.
func NewNodeRebootCommand(f *session.Factory) *cobra.Command {
	o := &nodeOpOptions{Factory: f, verb: "reboot", reboot: true, drain: true, uncordon: true}
	return newNodeOpCommand(o, "reboot NODE… [-- CMD…]", "Drain and reboot nodes one after the other",
		"Drain and reboot nodes one after the other, and wait for each to become ready with another boot ID. A command runs on\n"+
			"each node first; a node on which it fails is not rebooted.",
		"  kubectl skyhook node reboot worker-1 worker-2\n"+
			"  kubectl skyhook node reboot 'gpu-.*' --concurrency 2 --yes -- /host/usr/local/bin/before-reboot")
}

// NewNodeDrainCommand returns the command `node drain`.
func NewNodeDrainCommand(f *session.Factory) *cobra.Command {
	o := &nodeOpOptions{Factory: f, verb: "drain", drain: true}
	return newNodeOpCommand(o, "drain NODE… [-- CMD…]", "Cordon and drain nodes one after the other",
		"Cordon and drain nodes one after the other, as disruption budgets allow. It waits for a node that a Skyhook works on. A\n"+
			"command runs on the drained node. The nodes stay cordoned without --give-back.",
		"  kubectl skyhook node drain worker-1\n"+
			"  kubectl skyhook node drain worker-1 --give-back -- chroot /host systemctl restart containerd")
}

// NewNodeRunCommand returns the command `node run`.
func NewNodeRunCommand(f *session.Factory) *cobra.Command {
	o := &nodeOpOptions{Factory: f, verb: "run", uncordon: true}
	return newNodeOpCommand(o, "run NODE… -- CMD…", "Run a command once on nodes",
		"Run a command once on nodes, privileged and with the host's file system at /host, and print its output when a node is\n"+
			"done. It waits for a node that a Skyhook works on.",
		"  kubectl skyhook node run worker-1 -- chroot /host uname -r\n"+
			"  kubectl skyhook node run 'gpu-.*' --concurrency 0 --image busybox:1.36 -- chroot /host nvidia-smi -L")
}

func newNodeOpCommand(o *nodeOpOptions, use, short, long, example string) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example, ValidArgsFunction: o.CompleteNodes,
		Long: long + "\n\nThe command creates a NodeOp, so an operator must run. Exit code: the highest exit code of the command on a node, 1 when\n" +
			"something else failed. A NodeOp that succeeded is deleted; a failed one stays for inspection.",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.nodeArgs = args
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				o.nodeArgs, o.command = args[:at], args[at:]
			}
			return o.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	o.sure.AddFlags(flags)
	flags.StringVar(&o.image, "image", "", "`image` for the command; default: that of the operator")
	flags.Int32Var(&o.concurrency, "concurrency", 1, "number of nodes at the same time; 0 for all")
	flags.BoolVar(&o.stopOnFailure, "stop-on-failure", true, "start no further node after a failure")
	flags.BoolVar(&o.wait, "wait", true, "wait for the end, and print progress")
	flags.BoolVar(&o.keep, "keep", false, "keep the NodeOp even if it succeeded")
	flags.DurationVar(&o.timeout, "timeout", time.Hour, "stop waiting after this time, while the NodeOp continues; 0 for never")
	if o.verb != "drain" {
		flags.BoolVar(&o.drain, "drain", o.drain, "drain the nodes first")
	} else {
		flags.BoolVar(&o.uncordon, "give-back", o.uncordon, "uncordon the nodes afterwards")
	}
	return cmd
}

func (o *nodeOpOptions) validate() error {
	if len(o.nodeArgs) == 0 {
		return fmt.Errorf("node %s takes the names of nodes before --; see --help", o.verb)
	}
	if o.verb == "run" && len(o.command) == 0 {
		return errors.New("node run takes a command after --, such as -- chroot /host uname -r")
	}
	return nil
}

func (o *nodeOpOptions) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	var err error
	if o.client, err = o.NewClient(); err != nil {
		return err
	}
	nodes, selector, err := o.selectNodes(ctx)
	if err != nil {
		return err
	}
	names := output.List(session.NodeNames(nodes), 10)
	if err := o.Confirm(&o.sure, fmt.Sprintf("%s %s: %s?", Capitalize(o.verb), output.Count(len(nodes), "node"), names)); err != nil {
		return err
	}
	o.nodeOp = o.newNodeOp(o.NodeOpNamespace(ctx), selector)
	if err := o.create(ctx, nodes); err != nil {
		return err
	}
	if o.DryRun {
		o.nodeOp.Name = cmp.Or(o.nodeOp.Name, o.nodeOp.GenerateName+"…")
		return o.printNodeOp(fmt.Sprintf("nodeop/%s would be created for %s%s\n", o.nodeOp.Name, names, o.DryRunSuffix()))
	}
	fmt.Fprintf(o.ErrOut, "nodeop/%s created in namespace %s\n", o.nodeOp.Name, o.nodeOp.Namespace)
	if !o.wait {
		return o.printNodeOp(fmt.Sprintf("nodeop/%s\n", o.nodeOp.Name))
	}
	return o.waitForEnd(ctx)
}

// selectNodes returns the nodes that the arguments name, and a selector for exactly these.
func (o *nodeOpOptions) selectNodes(ctx context.Context) ([]*node.Node, nodeopv1.LabelSelector, error) {
	var none nodeopv1.LabelSelector
	all, err := session.ListNodeMetadata(ctx, o.Factory, o.client)
	if err != nil {
		return nil, none, err
	}
	// Checked before a node is cordoned.
	if err := o.client.List(ctx, &nodeopv1.NodeOpList{}, client.InNamespace(o.NodeOpNamespace(ctx)), client.Limit(1)); session.IsUnknownKind(err) {
		return nil, none, session.ErrNoNodeOps
	}
	nodes, err := session.SelectNodes(all, o.nodeArgs)
	if err != nil {
		return nil, none, err
	}
	selector, err := newHostnameSelector(all, nodes)
	return nodes, selector, err
}

// create creates the NodeOp, and cordons the nodes first when they are to stay cordoned.
func (o *nodeOpOptions) create(ctx context.Context, nodes []*node.Node) error {
	if !o.uncordon {
		cordon := func(*node.Node) (node.Edit, error) { return node.Edit{Unschedulable: new(true)}, nil }
		if err := session.EditNodes(ctx, o.Factory, o.client, nodes, cordon); err != nil {
			return fmt.Errorf("cordoning: %w", err)
		}
	}
	if err := o.client.Create(ctx, o.nodeOp); err != nil {
		return fmt.Errorf("creating the NodeOp: %w", err)
	}
	return nil
}

func (o *nodeOpOptions) printNodeOp(text string) error {
	return o.Print(output.Answer{Value: o.nodeOp, Names: []string{"nodeop/" + o.nodeOp.Name}, Text: func(bool) string { return text }})
}

// newHostnameSelector selects nodes by the hostname label, which Kubernetes sets on each node.
func newHostnameSelector(all, nodes []*node.Node) (nodeopv1.LabelSelector, error) {
	byHostname := map[string]string{}
	for _, n := range nodes {
		hostname := n.Labels[corev1.LabelHostname]
		if hostname == "" {
			return nodeopv1.LabelSelector{}, fmt.Errorf("node %s has no label %s, by which a NodeOp could select it", n.Name, corev1.LabelHostname)
		}
		byHostname[hostname] = n.Name
	}
	for _, n := range all {
		name, isSelected := byHostname[n.Labels[corev1.LabelHostname]]
		if isSelected && !slices.Contains(nodes, n) {
			return nodeopv1.LabelSelector{}, fmt.Errorf("node %s has the same label %s as node %s, so a NodeOp would select both", n.Name, corev1.LabelHostname, name)
		}
	}
	return nodeopv1.LabelSelector{MatchExpressions: []nodeopv1.LabelSelectorRequirement{
		{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: slices.Sorted(maps.Keys(byHostname))},
	}}, nil
}

func (o *nodeOpOptions) newNodeOp(namespace string, selector nodeopv1.LabelSelector) *nodeopv1.NodeOp {
	op := &nodeopv1.NodeOp{
		TypeMeta:   metav1.TypeMeta{APIVersion: nodeopv1.GroupVersion.String(), Kind: "NodeOp"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: o.verb + "-", Namespace: namespace},
		Spec: nodeopv1.NodeOpSpec{
			NodeSelector: selector, Command: o.command, Image: o.image, Concurrency: &o.concurrency, StopOnFailure: &o.stopOnFailure,
			RebootOnSuccess: &o.reboot, TTLSecondsAfterFinished: new(int32(3600)), BackoffLimit: new(int32(0)),
		},
	}
	if len(o.command) == 0 {
		op.Spec.Command = []string{"true"}
	}
	if o.drain {
		op.Spec.Cordon, op.Spec.UncordonOnFailure = new(true), new(true)
		op.Spec.DrainOptions = &nodeopv1.DrainOptions{Enabled: new(true), Force: new(true), DeleteEmptyDirData: new(true)}
	}
	return op
}
