// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packages

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
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// logPollInterval is how often --follow lists the pods, to find containers that started meanwhile.
const logPollInterval = time.Second

// LogsOptions are the flags of package logs.
type LogsOptions struct {
	*session.Factory
	Name, Pkg, Stage string
	NodeArgs         []string
	follow           bool
	Fetch            bool
	Tail             int64

	nodes  []string // that --fetch reads
	client client.Client
	pods   coreclient.PodInterface
	mu     sync.Mutex // guards the output
}

func newPackageLogsCommand(f *session.Factory) *cobra.Command {
	o := &LogsOptions{Factory: f, Tail: -1}
	cmd := &cobra.Command{
		Use:   "logs PACKAGE --skyhook SKYHOOK",
		Short: "Print the logs of a package's pods",
		Long: "Print the logs of a package's pods, including interrupts. A pod is deleted when its stage succeeded; its output is then\n" +
			"only on the node, in the agent's log folder (by default /var/log/skyhook/SKYHOOK/PACKAGE). With --fetch, a pod that can only\n" +
			"read this folder prints the last 4 KiB of the newest log of each step, and is deleted.",
		Example: "  kubectl skyhook package logs tuning --skyhook demo\n" +
			"  kubectl skyhook package logs tuning --skyhook demo --node worker-1 --stage interrupt -f\n" +
			"  kubectl skyhook package logs tuning --skyhook demo --node worker-1 --stage apply --fetch",
		Args: output.Args("PACKAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Pkg = args[0]
			return o.Run(cmd.Context())
		},
	}
	f.AddSkyhookFlag(cmd, &o.Name, true)
	f.AddNodeFlag(cmd, &o.NodeArgs, "only this `node`, by name or regular expression; may be repeated")
	cmd.Flags().StringVar(&o.Stage, "stage", "", "only this `stage`: "+strings.Join(view.LogStages, ", "))
	_ = cmd.RegisterFlagCompletionFunc("stage", cobra.FixedCompletions(view.LogStages, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "stream the logs until the pods are gone")
	cmd.Flags().BoolVar(&o.Fetch, "fetch", false, "where no pod has a log, read the host's with a pod; needs --node")
	cmd.Flags().Int64Var(&o.Tail, "tail", o.Tail, "number of recent `lines` of each container to print; -1 for all")
	return cmd
}

// Run prints the logs of a package.
func (o *LogsOptions) Run(ctx context.Context) error {
	if o.Stage != "" && !slices.Contains(view.LogStages, o.Stage) {
		return fmt.Errorf("--stage %q is not one of %s", o.Stage, strings.Join(view.LogStages, ", "))
	}
	core, err := o.CoreClient()
	if err != nil {
		return err
	}
	o.pods = core.Pods(o.Namespace(ctx))
	if o.client, err = o.NewClient(); err != nil {
		return err
	}
	if o.Fetch {
		if o.nodes, err = o.selectFetchNodes(ctx); err != nil {
			return err
		}
	}
	pods, err := o.listPods(ctx)
	if err != nil {
		return err
	}
	if len(pods) == 0 && !o.Fetch {
		o.Warn("no pod runs package %q of Skyhook %q now; what ended well is on the nodes: %s", o.Pkg, o.Name, o.fetchCommand())
		return nil
	}
	if o.follow && len(pods) > 0 {
		return o.followPods(ctx, pods)
	}
	var errs []error
	unread := slices.Clone(o.nodes)
	for _, p := range pods {
		for _, status := range o.startedContainers(p) {
			errs = append(errs, o.printLog(ctx, p, status))
			unread = slices.DeleteFunc(unread, func(name string) bool { return name == p.Spec.NodeName })
		}
	}
	return errors.Join(append(errs, o.fetchLogs(ctx, unread))...)
}

// fetchCommand is the command that reads the same logs from the hosts.
func (o *LogsOptions) fetchCommand() string {
	line := fmt.Sprintf("kubectl skyhook package logs %s --skyhook %s --node %s", o.Pkg, o.Name, cmp.Or(strings.Join(o.NodeArgs, " --node "), "NODE"))
	if o.Stage != "" {
		line += " --stage " + o.Stage
	}
	return line + " --fetch"
}

// listPods lists the pods of the package, the newest first.
func (o *LogsOptions) listPods(ctx context.Context) ([]*corev1.Pod, error) {
	o.Note("listing the pods of Skyhook %s in namespace %s", o.Name, o.Namespace(ctx))
	list := &corev1.PodList{}
	err := o.client.List(ctx, list, client.InNamespace(o.Namespace(ctx)), client.MatchingLabels{v1alpha1.LabelName: o.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of Skyhook %s: %w", o.Name, err)
	}
	var pods []*corev1.Pod
	var nodes []*node.Node
	for i := range list.Items {
		p := &list.Items[i]
		if len(o.containersOf(p)) == 0 {
			continue
		}
		pods, nodes = append(pods, p), append(nodes, &node.Node{Name: p.Spec.NodeName})
	}
	if len(o.NodeArgs) > 0 && len(pods) > 0 {
		names := o.nodes
		if !o.Fetch {
			selected, err := session.SelectNodes(nodes, o.NodeArgs)
			if err != nil {
				return nil, fmt.Errorf("no pod of package %s on it: %w; what ended well is on the nodes: %s", o.Pkg, err, o.fetchCommand())
			}
			names = session.NodeNames(selected)
		}
		pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return !slices.Contains(names, p.Spec.NodeName) })
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return pods, nil
}

// containersOf returns the containers of a pod that run stages of the package, of the stage that is asked for if one is.
func (o *LogsOptions) containersOf(p *corev1.Pod) []podstate.StageContainer {
	return slices.DeleteFunc(podstate.StageContainers(p), func(c podstate.StageContainer) bool {
		return c.Package != o.Pkg || o.Stage != "" && string(c.Stage) != o.Stage
	})
}

// startedContainers returns those containers of a pod that have a log.
func (o *LogsOptions) startedContainers(p *corev1.Pod) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for _, c := range o.containersOf(p) {
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if s.Name == c.Container && view.HasStarted(s) {
				out = append(out, s)
			}
		}
	}
	return out
}

// printLog prints the log of one container; the previous log when the container waits for a restart.
func (o *LogsOptions) printLog(ctx context.Context, p *corev1.Pod, s corev1.ContainerStatus) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Fprintf(o.Out, "==> Pod: %s, Container: %s [%s], Node: %s <==\n", p.Name, s.Name, view.FormatContainerState(s), p.Spec.NodeName)
	return o.streamLog(ctx, p, s, false, func(line string) { fmt.Fprintln(o.Out, line) })
}

// streamLog calls printLine for each line of the log of one container.
func (o *LogsOptions) streamLog(ctx context.Context, p *corev1.Pod, s corev1.ContainerStatus, follow bool, printLine func(string)) error {
	options := &corev1.PodLogOptions{Container: s.Name, Follow: follow, Previous: s.State.Waiting != nil}
	if o.Tail >= 0 {
		options.TailLines = &o.Tail
	}
	o.Note("reading the log of container %s of pod %s", s.Name, p.Name)
	in, err := o.pods.GetLogs(p.Name, options).Stream(ctx)
	if err != nil {
		return fmt.Errorf("reading the log of pod %s, container %s: %w", p.Name, s.Name, err)
	}
	defer in.Close()
	r := bufio.NewReader(in)
	for {
		text, err := r.ReadString('\n')
		if text != "" {
			printLine(strings.TrimRight(text, "\n"))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the log of pod %s, container %s: %w", p.Name, s.Name, err)
		}
	}
}

// runID identifies one run of a container: a restart has a new log.
func runID(p *corev1.Pod, s corev1.ContainerStatus) string {
	run := s.RestartCount
	if s.State.Waiting != nil {
		run-- // the readable log is that of the previous run
	}
	return fmt.Sprintf("%s/%s/%d", p.UID, s.Name, run)
}

// followPods streams the logs of all containers, including those that start later, until no pod has anything left to run.
func (o *LogsOptions) followPods(ctx context.Context, pods []*corev1.Pod) error {
	var group sync.WaitGroup
	defer group.Wait()
	followed := map[string]bool{}
	for {
		isBusy := false
		for _, p := range pods {
			isBusy = isBusy || o.hasWork(p)
			for _, s := range o.startedContainers(p) {
				if id := runID(p, s); !followed[id] {
					followed[id] = true
					group.Go(func() { o.followContainer(ctx, p, s) })
				}
			}
		}
		if !isBusy {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(logPollInterval):
		}
		var err error
		if pods, err = o.listPods(ctx); err != nil {
			return err
		}
	}
}

// hasWork reports whether a pod has containers of the package that have not succeeded yet.
func (o *LogsOptions) hasWork(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return false
	}
	succeeded := 0
	for _, s := range o.startedContainers(p) {
		if s.State.Terminated != nil && s.State.Terminated.ExitCode == 0 {
			succeeded++
		}
	}
	return succeeded < len(o.containersOf(p))
}

// followContainer streams the log of one container, each line with its node and container. An error is a warning, and does
// not stop the other containers.
func (o *LogsOptions) followContainer(ctx context.Context, p *corev1.Pod, s corev1.ContainerStatus) {
	prefix := fmt.Sprintf("[%s %s] ", p.Spec.NodeName, s.Name)
	err := o.streamLog(ctx, p, s, s.State.Running != nil, func(line string) {
		o.mu.Lock()
		defer o.mu.Unlock()
		fmt.Fprintln(o.Out, prefix+line)
	})
	if err != nil && ctx.Err() == nil {
		o.Warn("%v", err)
	}
}
