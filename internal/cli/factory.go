// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/dump"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// defaultNamespace is the namespace of the operator and its pods.
const defaultNamespace = "skyhook"

// factory gives commands what they share: streams, the flags of the root command, and clients.
type factory struct {
	*output.Printer
	version   string // of the plugin
	kubeFlags *genericclioptions.ConfigFlags
}

// newFactory prepares the connection to the cluster; nothing is read yet.
func newFactory(l Line) *factory {
	flags := genericclioptions.NewConfigFlags(true)
	flags.CacheDir = nil // the plugin does no discovery
	*flags.Namespace = defaultNamespace
	flags.WrapConfigFn = func(c *rest.Config) *rest.Config {
		c.QPS, c.Burst = -1, 0 // a few lists, and writes with a limit of their own
		c.UserAgent = "kubectl-skyhook/" + l.Version + " skyhook-plugin"
		return c
	}
	return &factory{Printer: &output.Printer{In: l.Stdin, Out: l.Stdout, ErrOut: l.Stderr}, version: l.Version, kubeFlags: flags}
}

func (f *factory) namespace() string { return *f.kubeFlags.Namespace }

func (f *factory) restConfig() (*rest.Config, error) {
	c, err := f.kubeFlags.ToRESTConfig()
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

// connect checks the output format and returns a client. It sends no request.
func (f *factory) connect() (client.Client, error) {
	if _, err := f.CheckFormat(); err != nil {
		return nil, err
	}
	return f.newClient()
}

func (f *factory) newClient() (client.Client, error) {
	config, err := f.restConfig()
	if err != nil {
		return nil, err
	}
	scheme, mapper, err := supportedKinds()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	core, err := f.coreClient()
	if err != nil {
		return nil, err
	}
	return nodeTrimmer{c, core.RESTClient()}, nil
}

// newObjectReader returns a reader of objects of any kind, whose kinds are found when they are read. It sends no request.
func (f *factory) newObjectReader() (client.Reader, error) {
	config, err := f.restConfig()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	return c, nil
}

// coreClient is for logs, which the other client cannot read.
func (f *factory) coreClient() (*corev1client.CoreV1Client, error) {
	config, err := f.restConfig()
	if err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	return core, nil
}

// policyBinding is read as metadata only.
var policyBinding = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"}

// supportedKinds returns the kinds that commands read and write, with their scope. Discovery would cost more calls than
// the commands themselves.
func supportedKinds() (*runtime.Scheme, meta.RESTMapper, error) {
	scheme, err := dump.Scheme()
	if err != nil {
		return nil, nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Event"),
		appsv1.SchemeGroupVersion.WithKind("Deployment"), appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), batchv1.SchemeGroupVersion.WithKind("Job"),
		policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), coordinationv1.SchemeGroupVersion.WithKind("Lease"),
		nodeopv1.GroupVersion.WithKind("NodeOp"), nodeopv1.GroupVersion.WithKind("NodeOpUpgrade"),
	} {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(policyBinding, meta.RESTScopeRoot)
	mapper.Add(v1alpha1.GroupVersion.WithKind("Skyhook"), meta.RESTScopeRoot)
	mapper.AddSpecific(v1alpha1.GroupVersion.WithKind("DeploymentPolicy"), v1alpha1.GroupVersion.WithResource("deploymentpolicies"),
		v1alpha1.GroupVersion.WithResource("deploymentpolicy"), meta.RESTScopeRoot)
	return scheme, mapper, nil
}

// dryRunSuffix marks sentences about changes that were not made.
func (f *factory) dryRunSuffix() string {
	if f.DryRun {
		return " (dry run)"
	}
	return ""
}

// confirm asks a question and returns an error unless the answer is yes. It does not ask with --dry-run.
func (f *factory) confirm(c *confirmation, question string) error {
	if c.given || f.DryRun {
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
