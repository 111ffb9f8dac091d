// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package page serves the pages of internal/ui with what internal/view computes, and follows the cluster for them.
package page

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/ui"
)

// uiMemory is the memory near which the command collects garbage more often: what 5,000 nodes need while a rollout is simulated.
const uiMemory = 80 << 20

// uiOptions are the flags of ui.
type uiOptions struct {
	*session.Factory
	from   session.ViewOptions
	port   int
	noOpen bool
	allow  bool // changes
	sample bool
}

// sample is a dump of a fleet in the middle of a rollout; test/ui records it.
//
//go:embed sample.yaml.gz
var sample []byte

// writeSample writes the sample where a dump is read from, and returns what removes it.
func (o *uiOptions) writeSample() (remove func(), err error) {
	dir, err := os.MkdirTemp("", "skyhook")
	if err != nil {
		return nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	o.from.From = filepath.Join(dir, "sample.yaml")
	from, err := gzip.NewReader(bytes.NewReader(sample))
	if err != nil {
		return remove, err
	}
	text, err := io.ReadAll(from)
	if err != nil {
		return remove, err
	}
	return remove, os.WriteFile(o.from.From, text, 0o600)
}

// NewUICommand returns the command `ui`.
func NewUICommand(f *session.Factory) *cobra.Command {
	o := &uiOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Show the fleet and its rollouts in a browser",
		Long: "Show the fleet and its rollouts in a browser. The pages are served on 127.0.0.1 of this machine until the command is\n" +
			"interrupted, with the rights of your kubeconfig. Nothing runs in the cluster. Nothing is changed there without\n" +
			"--allow-changes; with it, each change shows the command that it stands for, and asks.\n\n" +
			"The address contains a random token: who has it can see what you can see, and with --allow-changes do what it offers.",
		Example: "  kubectl skyhook ui\n" +
			"  kubectl skyhook ui --no-open --port 8900\n" +
			"  kubectl skyhook ui --allow-changes --context production\n" +
			"  kubectl skyhook ui --from dump.yaml\n" +
			"  kubectl skyhook ui --sample",
		Args: output.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.from.AddFromFlag(cmd)
	cmd.Flags().IntVar(&o.port, "port", 0, "port on 127.0.0.1; 0 for any free one")
	cmd.Flags().BoolVar(&o.noOpen, "no-open", false, "print the address without opening a browser")
	cmd.Flags().BoolVar(&o.sample, "sample", false, "show a fleet of 600 nodes that the plugin brings, without a cluster")
	cmd.Flags().BoolVar(&o.allow, "allow-changes", false, "offer to pause, resume, disable and enable Skyhooks, to approve compartments, to run packages again, to ignore nodes and to fetch logs")
	return cmd
}

func (o *uiOptions) run(ctx context.Context) error {
	if o.port < 0 || o.port > 65535 {
		return fmt.Errorf("--port %d is no port: use 1 to 65535, or 0 for any free one", o.port)
	}
	if o.sample && o.from.From != "" {
		return fmt.Errorf("--sample and --from exclude each other: the sample is a dump")
	}
	if o.sample {
		remove, err := o.writeSample()
		if remove != nil {
			defer remove()
		}
		if err != nil {
			return fmt.Errorf("writing the sample to a file: %w", err)
		}
	}
	if o.allow && o.from.From != "" {
		return fmt.Errorf("--allow-changes and --from exclude each other: a dump cannot be changed")
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(uiMemory)
	}
	source := newUISource(o.Factory, o.from)
	source.mayChange = o.allow
	if err := source.loadDirectly(ctx); err != nil { // a wrong context or file is an error of the command, not of a page
		return err
	}
	if o.from.From == "" {
		if err := source.follow(ctx); err != nil {
			return err
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port)))
	if err != nil {
		return fmt.Errorf("serving on 127.0.0.1: %w; --port 0 takes any free port", err)
	}
	server, err := ui.New(listener.Addr(), source.pages())
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(o.Out, "%s\n", server.Address()); err != nil {
		return err
	}
	if !o.noOpen {
		o.openBrowser(ctx, server)
	}
	return server.Serve(ctx, listener)
}

// openBrowser opens the first page, and warns when somebody else requested the address that the browser was given.
func (o *uiOptions) openBrowser(ctx context.Context, server *ui.Server) {
	go func() {
		select {
		case <-ctx.Done():
		case <-server.OpenedAgain():
			o.Warn("the address that the browser was opened with was requested again: if that was not you, another user of this machine did; then interrupt this command")
		}
	}()
	name, args := "xdg-open", []string{server.OpeningAddress()}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", append([]string{"url.dll,FileProtocolHandler"}, args...)
	}
	if err := exec.CommandContext(ctx, name, args...).Start(); err != nil {
		o.Warn("opening a browser: %v; open the address above", err)
	}
}
