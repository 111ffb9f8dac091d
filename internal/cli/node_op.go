// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// nodeOp is one operation on nodes that was asked for.
type nodeOp struct {
	verb        string
	sure        confirmation
	image       string
	concurrency int32
	stop        bool
	drain       bool
	giveBack    bool
	reboot      bool
	wait        bool
	keep        bool
	timeout     time.Duration
	command     []string
}

func (a *factory) nodeRebootCommand() *cobra.Command {
	op := &nodeOp{verb: "reboot", reboot: true, drain: true, giveBack: true}
	return a.nodeOpCommand(op, "reboot NODE… [-- CMD…]", "Drain and reboot nodes, one after the other, and wait until they are back",
		"Drain and reboot nodes, one after the other, and wait until each is back: ready, with another boot id. With a command it\n"+
			"runs on each node first, and a node on which it fails is not rebooted.",
		"  kubectl skyhook node reboot worker-1 worker-2\n"+
			"  kubectl skyhook node reboot 'gpu-.*' --concurrency 2 --yes -- /host/usr/local/bin/before-reboot")
}

func (a *factory) nodeDrainCommand() *cobra.Command {
	op := &nodeOp{verb: "drain", drain: true}
	return a.nodeOpCommand(op, "drain NODE… [-- CMD…]", "Cordon nodes and move their pods away",
		"Cordon nodes and move their pods away, one node after the other, as disruption budgets allow. A node that a Skyhook works\n"+
			"on is waited for. With a command it runs on the drained node. The nodes stay cordoned, or are given back with --give-back.",
		"  kubectl skyhook node drain worker-1\n"+
			"  kubectl skyhook node drain worker-1 --give-back -- chroot /host systemctl restart containerd")
}

func (a *factory) nodeRunCommand() *cobra.Command {
	op := &nodeOp{verb: "run", giveBack: true}
	return a.nodeOpCommand(op, "run NODE… -- CMD…", "Run a command once on nodes, and wait for it",
		"Run a command once on nodes, privileged and with the host's file system below /host, and wait for it. What it prints is\n"+
			"shown when a node is done. A node that a Skyhook works on is waited for.",
		"  kubectl skyhook node run worker-1 -- chroot /host uname -r\n"+
			"  kubectl skyhook node run 'gpu-.*' --concurrency 0 --image busybox:1.36 -- chroot /host nvidia-smi -L")
}

func (a *factory) nodeOpCommand(op *nodeOp, use, short, long, example string) *cobra.Command {
	op.concurrency, op.wait = 1, true
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example, ValidArgsFunction: a.completeNodes,
		Long: long + "\n\nIt is a NodeOp: the operator has to run. Exit code: that of the command on the node where it was highest, 1 when\n" +
			"something else failed. A NodeOp that ended well is deleted; one that did not stays to be looked at.",
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes := args
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				nodes, op.command = args[:at], args[at:]
			}
			return a.operateOn(cmd.Context(), op, nodes)
		},
	}
	f := cmd.Flags()
	op.sure.flags(f)
	f.StringVar(&op.image, "image", "", "`image` that the command runs in; the operator's default when absent")
	f.Int32Var(&op.concurrency, "concurrency", op.concurrency, "so many nodes at the same time; 0 for all")
	f.BoolVar(&op.stop, "stop-on-failure", true, "begin no further node once one has failed")
	f.BoolVar(&op.wait, "wait", op.wait, "wait for the end, and tell of progress")
	f.BoolVar(&op.keep, "keep", false, "keep the NodeOp also when it ended well")
	f.DurationVar(&op.timeout, "timeout", 0, "stop waiting after this time; the NodeOp goes on; 0 for never")
	if op.verb != "drain" {
		f.BoolVar(&op.drain, "drain", op.drain, "move pods away first")
	} else {
		f.BoolVar(&op.giveBack, "give-back", op.giveBack, "uncordon the nodes afterwards")
	}
	return cmd
}

func (a *factory) operateOn(ctx context.Context, op *nodeOp, args []string) error {
	if _, err := a.CheckFormat(); err != nil {
		return err
	}
	if len(args) == 0 {
		return fmt.Errorf("node %s takes the names of nodes before --; see --help", op.verb)
	}
	if op.verb == "run" && len(op.command) == 0 {
		return errors.New("node run takes a command after --, such as -- chroot /host uname -r")
	}
	c, err := a.newClient()
	if err != nil {
		return err
	}
	all, err := a.listNodeMetadata(ctx, c)
	if err != nil {
		return err
	}
	if err := c.List(ctx, &nodeopv1.NodeOpList{}, client.InNamespace(a.namespace()), client.Limit(1)); isUnknownKind(err) { // before a node is cordoned
		return errNoNodeOps
	}
	chosen, err := named(all, args)
	if err != nil {
		return err
	}
	selector, err := selecting(all, chosen)
	if err != nil {
		return err
	}
	if err := a.confirm(&op.sure, fmt.Sprintf("%s %s: %s?", strings.ToUpper(op.verb[:1])+op.verb[1:], output.Count(len(chosen), "node"), output.List(names(chosen), 10))); err != nil {
		return err
	}
	o := op.object(a.namespace(), selector)
	if a.DryRun {
		o.Name = o.GenerateName + "…"
		return a.Print(output.Answer{Value: o, Names: []string{"nodeop/" + o.Name}, Text: func(bool) string {
			return fmt.Sprintf("nodeop/%s would be created for %s (dry run)\n", o.Name, output.List(names(chosen), 10))
		}})
	}
	if !op.giveBack {
		yes := true
		if err := a.edit(ctx, c, chosen, func(*skyhook.Node) (skyhook.Edit, error) { return skyhook.Edit{Unschedulable: &yes}, nil }); err != nil {
			return fmt.Errorf("cordoning: %w", err)
		}
	}
	if err := c.Create(ctx, o); err != nil {
		return fmt.Errorf("creating the NodeOp: %w", err)
	}
	fmt.Fprintf(a.ErrOut, "nodeop/%s created in namespace %s\n", o.Name, o.Namespace)
	if !op.wait {
		return a.Print(output.Answer{Value: o, Names: []string{"nodeop/" + o.Name}, Text: func(bool) string {
			return fmt.Sprintf("nodeop/%s\n", o.Name)
		}})
	}
	return a.follow(ctx, c, op, o)
}

// selecting selects exactly these nodes by a label that Kubernetes puts on each.
func selecting(all, chosen []*skyhook.Node) (nodeopv1.LabelSelector, error) {
	wanted := map[string]string{}
	for _, n := range chosen {
		host := n.Labels[corev1.LabelHostname]
		if host == "" {
			return nodeopv1.LabelSelector{}, fmt.Errorf("node %s has no label %s, by which a NodeOp could select it", n.Name, corev1.LabelHostname)
		}
		wanted[host] = n.Name
	}
	for _, n := range all {
		if name, also := wanted[n.Labels[corev1.LabelHostname]]; also && name != n.Name && !slices.Contains(names(chosen), n.Name) {
			return nodeopv1.LabelSelector{}, fmt.Errorf("node %s has the same label %s as node %s, so a NodeOp would select both", n.Name, corev1.LabelHostname, name)
		}
	}
	values := slices.Sorted(maps.Keys(wanted))
	return nodeopv1.LabelSelector{MatchExpressions: []nodeopv1.LabelSelectorRequirement{{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: values}}}, nil
}

// object is the NodeOp.
func (op *nodeOp) object(namespace string, selector nodeopv1.LabelSelector) *nodeopv1.NodeOp {
	yes, hour, none := true, int32(3600), int32(0)
	o := &nodeopv1.NodeOp{
		TypeMeta:   metav1.TypeMeta{APIVersion: nodeopv1.GroupVersion.String(), Kind: "NodeOp"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: op.verb + "-", Namespace: namespace},
		Spec: nodeopv1.NodeOpSpec{
			NodeSelector: selector, Command: op.command, Image: op.image, Concurrency: op.concurrency, StopOnFailure: &op.stop,
			RebootOnSuccess: &op.reboot, TTLSecondsAfterFinished: &hour, BackoffLimit: &none,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	if len(op.command) == 0 {
		o.Spec.Command = []string{"true"}
	}
	if op.drain {
		o.Spec.Cordon, o.Spec.UncordonOnFailure = &yes, &yes
		o.Spec.DrainOptions = &nodeopv1.DrainOptions{Enabled: &yes, Force: &yes, DeleteEmptyDirData: &yes}
	}
	return o
}

// follow tells of progress until the operation has ended.
func (a *factory) follow(ctx context.Context, c client.Client, op *nodeOp, o *nodeopv1.NodeOp) error {
	if op.timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, op.timeout)
		defer cancel()
		ctx = limited
	}
	told := map[string]string{}
	for {
		switch err := c.Get(ctx, client.ObjectKeyFromObject(o), o); {
		case ctx.Err() != nil:
			return fmt.Errorf("stopped waiting; it goes on: kubectl skyhook status nodeop/%s/%s", o.Namespace, o.Name)
		case client.IgnoreNotFound(err) != nil:
			a.Warn("%v; trying again", err)
		case err != nil:
			return fmt.Errorf("nodeop/%s was deleted", o.Name)
		}
		for _, name := range slices.Sorted(maps.Keys(o.Status.NodeStatuses)) {
			if line := progressOf(o.Status.NodeStatuses[name]); told[name] != line {
				told[name] = line
				fmt.Fprintf(a.ErrOut, "%s  %s\n", name, line)
			}
		}
		if p := o.Status.Phase; p == nodeopv1.PhaseCompleted || p == nodeopv1.PhaseFailed {
			return a.ended(ctx, c, op, o)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func progressOf(s nodeopv1.NodeStatus) string {
	line := strings.ToLower(string(s.Phase))
	if s.RebootStatus == nodeopv1.RebootPending && s.Phase == nodeopv1.PhaseCompleted {
		line = "rebooting"
	}
	if s.Message != "" {
		line += ": " + output.Clip(s.Message, 200)
	}
	return line
}

// endedNode is how one node ended.
type endedNode struct {
	Node    string `json:"node"`
	Phase   string `json:"phase"`
	Message string `json:"message,omitempty"`
	Exit    *int32 `json:"exitCode,omitempty"`
	Output  string `json:"output,omitempty"`
}

// ended says how each node ended, and ends with the worst exit code.
func (a *factory) ended(ctx context.Context, c client.Client, op *nodeOp, o *nodeopv1.NodeOp) error {
	all := []endedNode{}
	for _, name := range slices.Sorted(maps.Keys(o.Status.NodeStatuses)) {
		s := o.Status.NodeStatuses[name]
		all = append(all, endedNode{Node: name, Phase: string(s.Phase), Message: s.Message, Exit: s.ExitCode, Output: s.Output})
	}
	if op.verb == "run" {
		a.readOutput(ctx, c, o, all)
	}
	worst := int32(0)
	for _, n := range all {
		if n.Exit != nil {
			worst = max(worst, *n.Exit)
		}
	}
	failed := o.Status.Phase == nodeopv1.PhaseFailed
	if failed {
		worst = max(worst, 1)
	}
	if !failed && !op.keep {
		if err := client.IgnoreNotFound(c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
			a.Warn("deleting nodeop/%s: %v", o.Name, err)
		}
	}
	if err := a.Print(output.Answer{Value: all, Names: []string{"nodeop/" + o.Name}, Text: func(bool) string { return endedText(all, &o.Status) }}); err != nil {
		return err
	}
	if failed {
		fmt.Fprintf(a.ErrOut, "nodeop/%s failed and stays: kubectl skyhook why nodeop/%s/%s\n", o.Name, o.Namespace, o.Name)
		return &output.ExitError{Code: int(min(worst, 255))}
	}
	return nil
}

func endedText(all []endedNode, s *nodeopv1.NodeOpStatus) string {
	var b strings.Builder
	for _, n := range all {
		if n.Output != "" {
			fmt.Fprintf(&b, "==> %s <==\n%s\n", n.Node, strings.TrimRight(n.Output, "\n"))
		}
	}
	fmt.Fprintf(&b, "%d of %s done", s.Completed, output.Count(int(s.Total), "node"))
	if s.Failed > 0 {
		fmt.Fprintf(&b, ", %d failed", s.Failed)
	}
	if s.Skipped > 0 {
		fmt.Fprintf(&b, ", %d skipped", s.Skipped)
	}
	return b.String() + "\n"
}
