// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/dump"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// mostLog bounds what is taken of one log.
const mostLog = 20 << 20

func (a *factory) supportBundleCommand() *cobra.Command {
	out := "skyhook-support.tar.gz"
	since := 24 * time.Hour
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Pack what a maintainer needs to understand a problem",
		Long: "Pack what a maintainer needs to understand a problem into one archive: the dump, what status, why and plan say now, events,\n" +
			"the logs of the operator and of failing packages, and the versions of everything.\n\n" +
			"The values of environment variables are replaced by words, and Secrets are not read. Logs and files of configMap are\n" +
			"packed as they are: look through them before you hand the archive on. What cannot be had is told of inside.",
		Example: "  kubectl skyhook support-bundle\n" +
			"  kubectl skyhook support-bundle -o /tmp/stuck.tar.gz --since 2h",
		Args: output.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.supportBundle(cmd.Context(), out, since) },
	}
	cmd.Flags().StringVarP(&out, "output", "o", out, "write the archive to this `FILE`")
	cmd.Flags().DurationVar(&since, "since", since, "take logs from so long ago on")
	return cmd
}

// bundle collects files.
type bundle struct {
	files   []bundled
	trouble []string
}

type bundled struct {
	name string
	text []byte
}

func (b *bundle) add(name string, text []byte, err error) {
	if err != nil {
		b.trouble = append(b.trouble, name+": "+err.Error())
	}
	if len(text) > 0 {
		b.files = append(b.files, bundled{name, text})
	}
}

// join adds what another one collected.
func (b *bundle) join(other *bundle) {
	b.files, b.trouble = append(b.files, other.files...), append(b.trouble, other.trouble...)
}

func (a *factory) supportBundle(ctx context.Context, out string, since time.Duration) error {
	c, err := a.newClient()
	if err != nil {
		return err
	}
	a.Format = output.Table
	var b, events, logs bundle
	var asking sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	asking.Go(func() { a.bundleEvents(ctx, c, &events) })
	asking.Go(func() { a.bundleLogs(ctx, c, &logs, since) })
	s, err := a.loadView(ctx, viewOptions{})
	if err != nil { // without a look at the cluster there is no bundle
		stop()
		asking.Wait()
		return err
	}
	a.bundleScene(ctx, &b, s)
	a.bundleVersions(ctx, &b, s.dump)
	asking.Wait()
	b.join(&events)
	b.join(&logs)
	if len(b.trouble) > 0 {
		b.files = append(b.files, bundled{"not-collected.txt", []byte(strings.Join(b.trouble, "\n") + "\n")})
		for _, t := range b.trouble {
			a.Warn("%s", t)
		}
	}
	f, err := os.OpenFile(filepath.Clean(out), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}
	if err := b.write(f); err != nil {
		_ = f.Close() // the first error says more
		return fmt.Errorf("writing the bundle: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}
	fmt.Fprintf(a.ErrOut, "%s written: %s\n", out, output.Count(len(b.files), "file"))
	return nil
}

// bundleScene adds the dump and what is to be said of it.
func (a *factory) bundleScene(ctx context.Context, b *bundle, s *view) {
	b.add("look-ahead", nil, s.loadNextPods(ctx, a))
	var dump bytes.Buffer
	var unwritten error
	var dumping sync.WaitGroup
	dumping.Go(func() {
		p, err := s.dump.Redacted()
		if err == nil {
			err = p.Write(&dump)
		}
		unwritten = err
	})
	var status, why strings.Builder
	for i := range s.snapshot.Rollouts {
		r := &s.snapshot.Rollouts[i]
		st := s.summarizeRollout(r)
		status.WriteString(a.screen(&st, true) + "\n")
		why.WriteString(r.Ref.String() + "\n" + indent(formatReasons(s.explainRollout(r), 0)) + "\n")
	}
	plan := s.buildPlan(s.forecast(everyStage(2*time.Minute), 365*24*time.Hour, afterWaves(10)), nil, 10).text(true)
	dumping.Wait()
	b.add("dump.yaml", dump.Bytes(), unwritten)
	b.add("status.txt", []byte(status.String()), nil)
	b.add("why.txt", []byte(why.String()), nil)
	b.add("plan.txt", []byte(plan), nil)
}

// bundleVersions adds what runs: here, in the cluster and on its nodes.
func (a *factory) bundleVersions(ctx context.Context, b *bundle, p *dump.Cluster) {
	versions := map[string]any{"plugin": a.version, "nodes": p.Systems(), "operator": orUnknown(a.operatorVersion(ctx, p))}
	if d, err := a.kubeFlags.ToDiscoveryClient(); err == nil {
		if v, err := d.ServerVersion(); err == nil {
			versions["kubernetes"] = v.GitVersion
		}
	}
	text, err := yaml.Marshal(versions)
	b.add("versions.yaml", text, err)
}

// bundleEvents adds the events about what is ours: those of our namespace, and of nodes and Skyhooks.
func (a *factory) bundleEvents(ctx context.Context, c client.Client, b *bundle) {
	var all []corev1.Event
	for _, ns := range []string{a.namespace(), "default"} {
		list := &corev1.EventList{}
		if err := c.List(ctx, list, client.InNamespace(ns)); err != nil {
			b.trouble = append(b.trouble, "events of namespace "+ns+": "+err.Error())
			continue
		}
		for _, e := range list.Items {
			if ns == a.namespace() || e.InvolvedObject.Kind == "Node" || strings.HasPrefix(e.InvolvedObject.APIVersion, v1alpha1.Group+"/") {
				all = append(all, e)
			}
		}
	}
	slices.SortStableFunc(all, func(x, y corev1.Event) int {
		return cmp.Or(x.LastTimestamp.Compare(y.LastTimestamp.Time), cmp.Compare(x.Name, y.Name))
	})
	var rows [][]string
	for _, e := range all {
		rows = append(rows, []string{
			e.LastTimestamp.UTC().Format(time.RFC3339), e.Type, e.Reason, strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name,
			fmt.Sprint(max(e.Count, 1)), strings.Join(strings.Fields(e.Message), " "),
		})
	}
	b.add("events.txt", []byte(output.FormatTable([]string{"LAST", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"}, rows, nil)), nil)
}

// bundleLogs adds the logs of the operator and of packages.
func (a *factory) bundleLogs(ctx context.Context, c client.Client, b *bundle, since time.Duration) {
	config, err := a.restConfig()
	if err != nil {
		b.add("logs", nil, err)
		return
	}
	core, err := coreclient.NewForConfig(config)
	if err != nil {
		b.add("logs", nil, err)
		return
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(a.namespace())); err != nil {
		b.add("logs", nil, err)
		return
	}
	b.trouble = append(b.trouble, silent(pods.Items, a.namespace())...)
	seconds, limit := int64(since.Seconds()), int64(mostLog)
	for i := range pods.Items {
		p := &pods.Items[i]
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if !worthReading(p, s) {
				continue
			}
			for _, previous := range []bool{false, true} {
				if previous && s.RestartCount == 0 {
					continue
				}
				name := "logs/" + p.Name + "/" + s.Name + ".log"
				if previous {
					name = "logs/" + p.Name + "/" + s.Name + ".previous.log"
				}
				o := &corev1.PodLogOptions{Container: s.Name, Previous: previous, SinceSeconds: &seconds, LimitBytes: &limit}
				text, err := readLog(ctx, core.Pods(p.Namespace), p.Name, o)
				b.add(name, text, err)
			}
		}
	}
}

// silent says why there is no log of an operator: there is no pod of one, or nothing has started in it yet.
func silent(pods []corev1.Pod, namespace string) []string {
	var out []string
	found := false
	for i := range pods {
		p := &pods[i]
		if !ofOperator(p) {
			continue
		}
		found = true
		if slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return worthReading(p, s) }) {
			continue
		}
		why := "no container has started"
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if w := s.State.Waiting; w != nil {
				why = strings.TrimSuffix(fmt.Sprintf("container %s waits: %s: %s", s.Name, w.Reason, w.Message), ": ")
			}
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				why = "it has no node: " + c.Message
			}
		}
		out = append(out, fmt.Sprintf("logs/%s: the operator's pod is %s, and %s", p.Name, cmp.Or(string(p.Status.Phase), "new"), why))
	}
	if !found {
		out = append(out, "logs: no pod of an operator is in namespace "+namespace)
	}
	return out
}

// ofOperator says that a pod runs an operator.
func ofOperator(p *corev1.Pod) bool {
	as := &appsv1.Deployment{}
	as.Labels, as.Spec.Template.Spec = p.Labels, p.Spec
	return p.Labels[v1alpha1.LabelName] == "" && len(operatorImages(as)) > 0
}

// worthReading says that a container is the operator's, or one of a package that did not simply end well.
func worthReading(p *corev1.Pod, s corev1.ContainerStatus) bool {
	if p.Labels[v1alpha1.LabelName] == "" {
		return ofOperator(p) && (s.State.Running != nil || s.State.Terminated != nil || s.RestartCount > 0)
	}
	failed := s.State.Terminated != nil && s.State.Terminated.ExitCode != 0
	return failed || s.RestartCount > 0 || s.State.Running != nil && s.Name != "pause"
}

func readLog(ctx context.Context, pods coreclient.PodInterface, pod string, o *corev1.PodLogOptions) ([]byte, error) {
	in, err := pods.GetLogs(pod, o).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(io.LimitReader(in, mostLog))
}

// write packs the files, by name.
func (b *bundle) write(to io.Writer) error {
	slices.SortFunc(b.files, func(x, y bundled) int { return strings.Compare(x.name, y.name) })
	zip := gzip.NewWriter(to)
	out := tar.NewWriter(zip)
	for _, f := range b.files {
		h := &tar.Header{Name: "skyhook-support/" + f.name, Mode: 0o600, Size: int64(len(f.text)), ModTime: time.Now().Truncate(time.Second)}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := out.Write(f.text); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	return zip.Close()
}
