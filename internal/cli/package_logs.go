// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// lookAgain is how often following looks for containers that started meanwhile.
const lookAgain = time.Second

// logStages are the stages that have pods.
var logStages = []string{
	string(v1alpha1.StageUninstall), string(v1alpha1.StageUninstallInterrupt), string(v1alpha1.StageUpgrade), string(v1alpha1.StageApply),
	string(v1alpha1.StageConfig), string(v1alpha1.StageInterrupt), string(v1alpha1.StagePostInterrupt),
}

// logging is one request for logs.
type logging struct {
	skyhook, pkg, stage string
	nodes               []string
	follow              bool
	tail                int64

	pods coreclient.PodInterface
	mu   sync.Mutex // over the output
}

func (a *factory) packageLogsCommand() *cobra.Command {
	l := logging{tail: -1}
	cmd := &cobra.Command{
		Use:   "logs PACKAGE --skyhook SKYHOOK",
		Short: "Print what a package's pods say",
		Long: "Print what a package's pods say, interrupts included. A pod goes when its stage has ended well; then the output is\n" +
			"on the node only, in the agent's log folder (by default /var/log/skyhook/SKYHOOK/PACKAGE).",
		Example: "  kubectl skyhook package logs tuning --skyhook demo\n" +
			"  kubectl skyhook package logs tuning --skyhook demo --node worker-1 --stage interrupt -f",
		Args: output.Args("PACKAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l.pkg = args[0]
			return a.logs(cmd.Context(), &l)
		},
	}
	a.skyhookFlag(cmd, &l.skyhook, true)
	a.nodeFlag(cmd, &l.nodes, "this `node` only, by name or regular expression; may be repeated")
	cmd.Flags().StringVar(&l.stage, "stage", "", "this `stage` only: "+strings.Join(logStages, ", "))
	_ = cmd.RegisterFlagCompletionFunc("stage", cobra.FixedCompletions(logStages, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().BoolVarP(&l.follow, "follow", "f", false, "go on until the pods are gone")
	cmd.Flags().Int64Var(&l.tail, "tail", l.tail, "at most this many last `lines` of each container; -1 for all")
	return cmd
}

func (a *factory) logs(ctx context.Context, l *logging) error {
	if l.stage != "" && !slices.Contains(logStages, l.stage) {
		return fmt.Errorf("--stage %q is not one of %s", l.stage, strings.Join(logStages, ", "))
	}
	config, err := a.restConfig()
	if err != nil {
		return err
	}
	core, err := coreclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("finding the cluster: %w", err)
	}
	l.pods = core.Pods(a.namespace())
	c, err := a.newClient()
	if err != nil {
		return err
	}
	pods, err := a.podsOf(ctx, c, l)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		a.Warn("no pod runs package %q of Skyhook %q now; what ended well is on the nodes, in the agent's log folder", l.pkg, l.skyhook)
		return nil
	}
	if l.follow {
		return a.followLogs(ctx, c, l, pods)
	}
	var errs []error
	for _, p := range pods {
		for _, status := range started(p) {
			errs = append(errs, a.printLog(ctx, l, p, status))
		}
	}
	return errors.Join(errs...)
}

// podsOf lists the pods of the package, the newest first.
func (a *factory) podsOf(ctx context.Context, c client.Client, l *logging) ([]*corev1.Pod, error) {
	a.Note("listing the pods of Skyhook %s in namespace %s", l.skyhook, a.namespace())
	list := &corev1.PodList{}
	err := c.List(ctx, list, client.InNamespace(a.namespace()), client.MatchingLabels{v1alpha1.LabelName: l.skyhook})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of Skyhook %s: %w", l.skyhook, err)
	}
	var out []*corev1.Pod
	var on []*skyhook.Node
	for i := range list.Items {
		p := &list.Items[i]
		name, _, stage, ok := skyhook.Runs(p)
		if !ok || name != l.pkg || l.stage != "" && string(stage) != l.stage {
			continue
		}
		out, on = append(out, p), append(on, &skyhook.Node{Name: p.Spec.NodeName})
	}
	if len(l.nodes) > 0 && len(out) > 0 {
		wanted, err := named(on, l.nodes)
		if err != nil {
			return nil, fmt.Errorf("no pod of package %s on it: %w", l.pkg, err)
		}
		out = slices.DeleteFunc(out, func(p *corev1.Pod) bool { return !slices.Contains(names(wanted), p.Spec.NodeName) })
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int {
		if c := b.CreationTimestamp.Compare(a.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out, nil
}

// started are the containers of a pod that say something: not the one that copies the package, which is the first of a
// stage's pod, and none that has not begun.
func started(p *corev1.Pod) []corev1.ContainerStatus {
	interrupt := p.Labels[v1alpha1.LabelInterrupt] == "True"
	var out []corev1.ContainerStatus
	for i, c := range p.Spec.InitContainers {
		if i == 0 && !interrupt {
			continue
		}
		for _, s := range p.Status.InitContainerStatuses {
			if s.Name == c.Name && (s.State.Running != nil || s.State.Terminated != nil || s.State.Waiting != nil && s.LastTerminationState.Terminated != nil) {
				out = append(out, s)
			}
		}
	}
	return out
}

// phase is a word for the state of a container.
func phase(s corev1.ContainerStatus) string {
	switch {
	case s.State.Running != nil:
		return "running"
	case s.State.Terminated != nil:
		return fmt.Sprintf("exited with %d", s.State.Terminated.ExitCode)
	case s.State.Waiting != nil:
		return "waiting: " + cmp.Or(s.State.Waiting.Reason, "unknown")
	}
	return "unknown"
}

// printLog prints what one container said, and for one that waits to be started again what it said before.
func (a *factory) printLog(ctx context.Context, l *logging, p *corev1.Pod, s corev1.ContainerStatus) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(a.Out, "==> Pod: %s, Container: %s [%s], Node: %s <==\n", p.Name, s.Name, phase(s), p.Spec.NodeName)
	return a.stream(ctx, l, p, s, false, func(line string) { fmt.Fprintln(a.Out, line) })
}

// stream hands the lines of one container on.
func (a *factory) stream(ctx context.Context, l *logging, p *corev1.Pod, s corev1.ContainerStatus, follow bool, line func(string)) error {
	options := &corev1.PodLogOptions{Container: s.Name, Follow: follow, Previous: s.State.Waiting != nil}
	if l.tail >= 0 {
		options.TailLines = &l.tail
	}
	a.Note("reading the log of container %s of pod %s", s.Name, p.Name)
	in, err := l.pods.GetLogs(p.Name, options).Stream(ctx)
	if err != nil {
		return fmt.Errorf("reading the log of pod %s, container %s: %w", p.Name, s.Name, err)
	}
	defer in.Close()
	r := bufio.NewReader(in)
	for {
		text, err := r.ReadString('\n')
		if text != "" {
			line(strings.TrimRight(text, "\n"))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the log of pod %s, container %s: %w", p.Name, s.Name, err)
		}
	}
}

// run names one run of a container: when it restarts there is more to follow.
func run(p *corev1.Pod, s corev1.ContainerStatus) string {
	n := s.RestartCount
	if s.State.Waiting != nil {
		n-- // what can be read is the run before
	}
	return fmt.Sprintf("%s/%s/%d", p.UID, s.Name, n)
}

// followLogs prints every line of every container as it comes, with its node and container before it, and looks for
// containers that start later, until no pod is left that has anything to run.
func (a *factory) followLogs(ctx context.Context, c client.Client, l *logging, pods []*corev1.Pod) error {
	var group sync.WaitGroup
	defer group.Wait()
	seen := map[string]bool{}
	for {
		busy := false
		for _, p := range pods {
			busy = busy || underWay(p)
			for _, s := range started(p) {
				if !seen[run(p, s)] {
					seen[run(p, s)] = true
					group.Go(func() { a.followOne(ctx, l, p, s) })
				}
			}
		}
		if !busy {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookAgain):
		}
		var err error
		if pods, err = a.podsOf(ctx, c, l); err != nil {
			return err
		}
	}
}

// underWay says that a pod has containers that have not ended well.
func underWay(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return false
	}
	ended := 0
	for _, s := range p.Status.InitContainerStatuses {
		if s.State.Terminated != nil && s.State.Terminated.ExitCode == 0 {
			ended++
		}
	}
	return ended < len(p.Spec.InitContainers)
}

// followOne follows one container to its end. A container that cannot be read is told of and does not end the others.
func (a *factory) followOne(ctx context.Context, l *logging, p *corev1.Pod, s corev1.ContainerStatus) {
	prefix := fmt.Sprintf("[%s %s] ", p.Spec.NodeName, s.Name)
	err := a.stream(ctx, l, p, s, s.State.Running != nil, func(line string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		fmt.Fprintln(a.Out, prefix+line)
	})
	if err != nil && ctx.Err() == nil {
		a.Warn("%v", err)
	}
}
