// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package support has what helps to find a fault: support bundles, dumps and versions.
package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/internal/cli/look"
	"github.com/skyhook-k8s/skyhook/internal/cli/preview"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/dump"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// NewSupportBundleCommand returns the command `support-bundle`.
func NewSupportBundleCommand(f *session.Factory) *cobra.Command {
	file := "skyhook-support.tar.gz"
	since := 24 * time.Hour
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Write an archive that helps maintainers to analyse a problem",
		Long: "Write an archive that helps maintainers to analyse a problem: the dump, the output of status, why and plan, events, the\n" +
			"logs of the operator and of failing packages, and all versions.\n\n" +
			"Values of environment variables, and users and passwords of URLs, are replaced; Secrets are not read. Logs and the files of\n" +
			"configMap are not changed otherwise: check them before you share the archive. It lists what could not be collected.",
		Example: "  kubectl skyhook support-bundle\n" +
			"  kubectl skyhook support-bundle --to /tmp/stuck.tar.gz --since 2h",
		Args: output.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return runSupportBundle(cmd.Context(), f, file, since) },
	}
	cmd.Flags().StringVar(&file, "to", file, "write the archive to this `FILE`")
	f.AddOutputFlag(cmd.Flags(), "to")
	cmd.Flags().DurationVar(&since, "since", since, "include logs of this time")
	return cmd
}

func runSupportBundle(ctx context.Context, f *session.Factory, file string, since time.Duration) error {
	c, err := f.NewClient()
	if err != nil {
		return err
	}
	f.Format = output.Table
	b := &bundle{Factory: f}
	if err := b.collect(ctx, c, since); err != nil {
		return err
	}
	if err := writePrivateFile(file, b.write); err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}
	fmt.Fprintf(f.ErrOut, "%s written: %s\n", file, output.Count(len(b.files), "file"))
	return nil
}

// bundle collects the files of an archive.
type bundle struct {
	*session.Factory
	mu       sync.Mutex
	files    []bundleFile
	problems []string
}

const dumpFile = "dump.yaml"

type bundleFile struct {
	name    string
	content []byte
}

// add adds a file, unless it is empty, and the problem of an error.
func (b *bundle) add(name string, content []byte, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.problems = append(b.problems, dump.RedactURLs(name+": "+err.Error()))
	}
	if name != dumpFile { // which keeps what digests are made of
		content = []byte(dump.RedactURLs(string(content)))
	}
	if len(content) > 0 {
		b.files = append(b.files, bundleFile{name, content})
	}
}

// collect collects events and logs while it loads the cluster, without which there is no bundle.
func (b *bundle) collect(ctx context.Context, c client.Client, since time.Duration) error {
	var group sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer group.Wait()
	defer cancel()
	group.Go(func() { b.addEvents(ctx, c) })
	group.Go(func() { b.addLogs(ctx, c, since) })
	v, err := session.LoadView(ctx, b.Factory, session.ViewOptions{})
	if err != nil {
		return err
	}
	b.addView(ctx, v)
	b.addVersions(ctx, v.Dump)
	group.Wait()
	slices.Sort(b.problems)
	for _, problem := range b.problems {
		b.Warn("%s", problem)
	}
	if len(b.problems) > 0 {
		b.files = append(b.files, bundleFile{"not-collected.txt", []byte(strings.Join(b.problems, "\n") + "\n")})
	}
	return nil
}

// addView adds the dump, and what commands print about it.
func (b *bundle) addView(ctx context.Context, v *view.Cluster) {
	b.add("look-ahead", nil, session.LoadNextPods(ctx, b.Factory, v))
	var group sync.WaitGroup
	group.Go(func() {
		var text bytes.Buffer
		redacted, err := v.Dump.Redacted()
		if err == nil {
			err = redacted.Write(&text)
		}
		b.add(dumpFile, text.Bytes(), err)
	})
	var status, why strings.Builder
	for i := range v.Snapshot.Rollouts {
		r := &v.Snapshot.Rollouts[i]
		s := view.SummarizeRollout(v, r)
		status.WriteString(look.FormatRolloutDetails(&s, b.Printer, true) + "\n")
		why.WriteString(r.Ref.String() + "\n" + session.Indent(look.FormatExplanations(view.ExplainRollout(v, r), 0)) + "\n")
	}
	b.add("status.txt", []byte(status.String()), nil)
	b.add("why.txt", []byte(why.String()), nil)
	b.add("plan.txt", []byte(preview.FormatPlan(view.BuildPlan(v, nil, 10), true)), nil)
	group.Wait()
}

// addVersions adds the versions of the plugin, the cluster and its nodes.
func (b *bundle) addVersions(ctx context.Context, c *dump.Cluster) {
	versions := map[string]any{"plugin": b.Version, "nodes": c.Systems(), "operator": orUnknown(session.FindOperatorVersion(ctx, b.Factory, c))}
	if d, err := b.KubeFlags.ToDiscoveryClient(); err == nil {
		if v, err := d.ServerVersion(); err == nil {
			versions["kubernetes"] = v.GitVersion
		}
	}
	text, err := yaml.Marshal(versions)
	b.add("versions.yaml", text, err)
}

// write writes the archive, with the files by name.
func (b *bundle) write(to io.Writer) error {
	slices.SortFunc(b.files, func(x, y bundleFile) int { return strings.Compare(x.name, y.name) })
	zip := gzip.NewWriter(to)
	out := tar.NewWriter(zip)
	for _, f := range b.files {
		h := &tar.Header{Name: "skyhook-support/" + f.name, Mode: 0o600, Size: int64(len(f.content)), ModTime: time.Now().Truncate(time.Second)}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := out.Write(f.content); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	return zip.Close()
}
