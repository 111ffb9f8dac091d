// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package session has what commands share: their flags, the connection to the cluster, and loading what internal/view shows.
package session

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/dump"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// DefaultNamespace is the namespace of the operator and its pods.
const DefaultNamespace = "skyhook"

// Factory gives commands what they share: streams, the flags of the root command, and clients.
type Factory struct {
	*output.Printer
	Version   string // of the plugin
	KubeFlags *genericclioptions.ConfigFlags

	OperatorNamespace string // as given, or as Namespace found it
	allNamespaces     bool
}

// NewFactory prepares the connection to the cluster; nothing is read yet.
func NewFactory(in io.Reader, out, errOut io.Writer, version string) *Factory {
	flags := genericclioptions.NewConfigFlags(true)
	flags.CacheDir = nil // the plugin does no discovery
	flags.WrapConfigFn = func(c *rest.Config) *rest.Config {
		c.QPS, c.Burst = -1, 0 // a few lists, and writes with a limit of their own
		c.UserAgent = "kubectl-skyhook/" + version + " skyhook-plugin"
		c.Wrap(func(next http.RoundTripper) http.RoundTripper { return answering{next, answerLimit} })
		return c
	}
	return &Factory{Printer: &output.Printer{In: in, Out: out, ErrOut: errOut}, Version: version, KubeFlags: flags}
}

// RestConfig is how the cluster is reached.
func (f *Factory) RestConfig() (*rest.Config, error) {
	c, err := f.KubeFlags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	c.DisableCompression = c.DisableCompression || isLocal(c.Host)
	return c, nil
}

// isLocal reports whether a server is on this machine, where compressing answers takes longer than sending them.
func isLocal(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	address := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || address != nil && address.IsLoopback()
}

// NewClient returns a client for the kinds that commands use. It sends no request.
func (f *Factory) NewClient() (client.Client, error) {
	config, err := f.RestConfig()
	if err != nil {
		return nil, err
	}
	scheme, mapper, err := SupportedKinds()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	return f.LimitClient(c)
}

// LimitClient has a client list nodes without what no command reads, and write what --dry-run lets it write.
func (f *Factory) LimitClient(c client.Client) (client.Client, error) {
	core, err := f.CoreClient()
	if err != nil {
		return nil, err
	}
	if f.ServerDryRun {
		c = client.NewDryRunClient(c)
	}
	return nodeTrimmer{sender{c, f}, core.RESTClient()}, nil
}

// newObjectReader returns a reader of objects of any kind, whose kinds are found when they are read. It sends no request.
func (f *Factory) newObjectReader() (client.Reader, error) {
	config, err := f.RestConfig()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	return c, nil
}

// CoreClient is for logs, which the other client cannot read.
func (f *Factory) CoreClient() (*corev1client.CoreV1Client, error) {
	config, err := f.RestConfig()
	if err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	return core, nil
}

// PolicyBinding is read as metadata only.
var PolicyBinding = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"}

// clusterKinds are the kinds of dump.Scheme that have no namespace.
var clusterKinds = map[string]bool{"Node": true, "Namespace": true, "PersistentVolume": true, "ComponentStatus": true, "Skyhook": true, "DeploymentPolicy": true}

// SupportedKinds returns the kinds that commands read and write, with their scope: all of dump.Scheme. Discovery would cost more calls than
// the commands themselves.
func SupportedKinds() (*runtime.Scheme, meta.RESTMapper, error) {
	scheme, err := dump.Scheme()
	if err != nil {
		return nil, nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.AllKnownTypes() {
		if clusterKinds[kind.Kind] {
			mapper.Add(kind, meta.RESTScopeRoot)
		} else {
			mapper.Add(kind, meta.RESTScopeNamespace)
		}
	}
	mapper.Add(PolicyBinding, meta.RESTScopeRoot)
	return scheme, mapper, nil
}

// Confirm asks a question and returns an error unless the answer is yes. It does not ask with --dry-run.
func (f *Factory) Confirm(c *Confirmation, question string) error {
	if c.Given || f.DryRun {
		return nil
	}
	fmt.Fprintf(f.ErrOut, "%s [y/N]: ", question)
	line, err := bufio.NewReader(f.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if err != nil {
		fmt.Fprintln(f.ErrOut)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return errors.New("not confirmed, so nothing was changed: answer y, or add --confirm")
}

// RunGroup is the RunE of commands that only hold others: it prints the help, and refuses an unknown command.
func RunGroup(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return fmt.Errorf("unknown command %q for %q; see %s --help", args[0], cmd.CommandPath(), cmd.CommandPath())
}
