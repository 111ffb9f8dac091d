// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/test/controlplane"
)

// scriptEnv is the environment of one script. The scripts share an API server, one after the other.
type scriptEnv struct {
	client client.Client
	proxy  *proxy
	made   []*unstructured.Unstructured
}

var oneAtATime sync.Mutex

// TestCluster runs the scripts of the commands that need a cluster, with a real API server.
func TestCluster(t *testing.T) {
	p := server(t)
	c, err := client.New(p.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kubelet := newKubelet(t)
	complete, err := filepath.Abs("../../cmd/kubectl-skyhook")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/cluster",
		Setup: func(env *testscript.Env) error {
			oneAtATime.Lock()
			s := &scriptEnv{client: c, proxy: newProxy(p.Config)}
			env.Values["stage"] = s
			env.Defer(func() {
				defer oneAtATime.Unlock()
				s.proxy.Close()
				if err := s.clear(); err != nil {
					t.Error(err)
				}
			})
			env.Setenv("KUBELET_PORT", kubelet)
			env.Setenv("COMPLETE", complete)
			env.Vars = append(env.Vars, noSleepAtExit)
			env.Setenv("KUBECONFIG", filepath.Join(env.WorkDir, "kubeconfig"))
			return s.proxy.kubeconfig(filepath.Join(env.WorkDir, "kubeconfig"))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"objects": objectsCmd, "show": showCmd, "calls": callsCmd, "meanwhile": meanwhileCmd, "finish": finishCmd, "kubelet": kubeletCmd, "pods": podsCmd,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
	})
}

func scriptEnvOf(ts *testscript.TestScript) *scriptEnv { return ts.Value("stage").(*scriptEnv) }

// objectsCmd creates the objects of a file, with their status: objects FILE.
func objectsCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: objects FILE")
	}
	s, text := scriptEnvOf(ts), os.Expand(ts.ReadFile(args[0]), ts.Getenv)
	in := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := in.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return
		}
		ts.Check(err)
		if o.Object == nil {
			continue
		}
		status, withStatus := o.Object["status"]
		err = s.client.Create(context.Background(), o)
		if apierrors.IsAlreadyExists(err) && o.GetKind() == "Namespace" {
			continue
		}
		ts.Check(err)
		s.made = append(s.made, o)
		if withStatus {
			o.Object["status"] = status
			ts.Check(s.client.Status().Update(context.Background(), o))
		}
	}
}

// clear deletes the objects of the script. Namespaces stay, because no controller empties them.
func (s *scriptEnv) clear() error {
	var errs []error
	now := int64(0)
	for _, o := range s.made {
		if o.GetKind() == "Namespace" {
			continue
		}
		err := s.client.Delete(context.Background(), o, &client.DeleteOptions{GracePeriodSeconds: &now})
		errs = append(errs, client.IgnoreNotFound(err))
	}
	return errors.Join(errs...)
}

// showCmd prints the fields of an object that commands may change: show KIND NAME.
func showCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: show KIND NAME")
	}
	o := &unstructured.Unstructured{}
	versions := map[string]string{"Node": "v1", "Skyhook": "skyhook.nvidia.com/v1alpha1", "DeploymentPolicy": "skyhook.nvidia.com/v1alpha1"}
	o.SetAPIVersion(versions[args[0]])
	o.SetKind(args[0])
	ts.Check(scriptEnvOf(ts).client.Get(context.Background(), client.ObjectKey{Name: args[1]}, o))
	shown := map[string]any{}
	if a := o.GetAnnotations(); len(a) > 0 {
		shown["annotations"] = a
	}
	if l := o.GetLabels(); len(l) > 0 {
		shown["labels"] = l
	}
	if u, ok, _ := unstructured.NestedBool(o.Object, "spec", "unschedulable"); ok && u {
		shown["unschedulable"] = u
	}
	if status, ok := o.Object["status"]; ok && args[0] != "Node" {
		shown["status"] = status
	}
	raw, err := yaml.Marshal(shown)
	ts.Check(err)
	_, err = ts.Stdout().Write(raw)
	ts.Check(err)
}

// callsCmd prints the calls to the API server since the last time, sorted: calls.
func callsCmd(ts *testscript.TestScript, _ bool, _ []string) {
	for _, line := range scriptEnvOf(ts).proxy.takeCalls() {
		_, err := fmt.Fprintln(ts.Stdout(), line)
		ts.Check(err)
	}
}

// meanwhileCmd writes an annotation of a node between the read and the first write of a command:
// meanwhile NODE KEY=VALUE. Without a value it deletes the node.
func meanwhileCmd(ts *testscript.TestScript, _ bool, args []string) {
	s := scriptEnvOf(ts)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: args[0]}}
	s.proxy.runBefore(func() {
		if len(args) == 1 {
			ts.Check(s.client.Delete(context.Background(), n))
			return
		}
		key, value, _ := strings.Cut(args[1], "=")
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
		ts.Check(err)
		ts.Check(s.client.Patch(context.Background(), n, client.RawPatch(types.MergePatchType, raw)))
	})
}

// finishCmd deletes a pod once its log was requested, as the operator does when a stage succeeds: finish POD.
func finishCmd(ts *testscript.TestScript, _ bool, args []string) {
	s := scriptEnvOf(ts)
	for deadline := time.Now().Add(time.Minute); !s.proxy.hasSeen("/pods/" + args[0] + "/log"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("nobody asked for the log of %s", args[0])
		}
	}
	now := int64(0)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: args[0], Namespace: "skyhook"}}
	ts.Check(s.client.Delete(context.Background(), p, &client.DeleteOptions{GracePeriodSeconds: &now}))
}

// kubeletCmd gives the pod of --fetch on a node a status, and writes its spec to a file: kubelet NODE STATUS SPEC. An event is created
// with the message of the status.
func kubeletCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: kubelet NODE STATUS SPEC")
	}
	s, status, file := scriptEnvOf(ts), ts.ReadFile(args[1]), ts.MkAbs(args[2])
	go func() {
		ctx := context.Background()
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			list := &corev1.PodList{}
			if err := s.client.List(ctx, list, client.InNamespace("skyhook"), client.MatchingLabels{"app.kubernetes.io/name": "package-logs"}); err != nil {
				continue
			}
			for i := range list.Items {
				p := &list.Items[i]
				raw, err := yaml.Marshal(p.Spec)
				if p.Spec.NodeName != args[0] || err != nil || os.WriteFile(file, raw, 0o600) != nil {
					continue
				}
				e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: p.Name + ".1", Namespace: p.Namespace}, Reason: "FailedMount"}
				e.InvolvedObject = corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name}
				if _, e.Message, _ = strings.Cut(status, "# event: "); e.Message != "" {
					_ = s.client.Create(ctx, e)
				}
				if raw, err = yaml.YAMLToJSON([]byte(status)); err == nil {
					_ = s.client.Status().Patch(ctx, p, client.RawPatch(types.MergePatchType, raw))
				}
				return
			}
		}
	}()
}

// podsCmd prints the pods of --fetch: pods.
func podsCmd(ts *testscript.TestScript, _ bool, _ []string) {
	list := &corev1.PodList{}
	ts.Check(scriptEnvOf(ts).client.List(context.Background(), list, client.MatchingLabels{"app.kubernetes.io/name": "package-logs"}))
	_, err := fmt.Fprintf(ts.Stdout(), "%d pods\n", len(list.Items))
	ts.Check(err)
}

// proxy forwards requests to the API server and records them.
type proxy struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []string
	sooner func()
	hidden []string // API paths that the server is made not to know
}

func newProxy(config *rest.Config) *proxy {
	to, err := url.Parse(config.Host)
	if err != nil {
		panic(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		panic(err)
	}
	p := &proxy{}
	forward := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to); p.hide(r.Out.URL) }}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.record(r)
		controlplane.BufferBody(r)
		forward.ServeHTTP(w, r)
	}))
	return p
}

func (p *proxy) record(r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Method == http.MethodPatch && p.sooner != nil {
		p.sooner()
		p.sooner = nil
	}
	p.asked = append(p.asked, r.Method+" "+r.URL.Path)
}

// hide changes a request so that the API server does not know the kind.
func (p *proxy) hide(u *url.URL) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, path := range p.hidden {
		if strings.HasPrefix(u.Path, path) {
			u.Path = strings.Replace(u.Path, "/v1alpha1/", "/v1alpha1/no", 1)
		}
	}
}

func (p *proxy) hasSeen(suffix string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.asked, func(call string) bool { return strings.HasSuffix(call, suffix) })
}

// listCalls returns the recorded calls.
func (p *proxy) listCalls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

func (p *proxy) takeCalls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.asked
	p.asked = nil
	slices.Sort(out)
	return out
}

func (p *proxy) runBefore(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sooner = f
}

func (p *proxy) kubeconfig(file string) error {
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: c, context: {cluster: c}}]\n", p.URL)
	return os.WriteFile(file, []byte(text), 0o600)
}

// newKubelet starts a fake kubelet: its logs have the name of the container and the request.
func newKubelet(t *testing.T) (port string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		parts := strings.Split(r.URL.Path, "/") // /containerLogs/NAMESPACE/POD/CONTAINER
		fmt.Fprintf(&b, "%s says", parts[len(parts)-1])
		if strings.Contains(parts[len(parts)-1], "-drift") {
			fmt.Fprint(&b, " what the agent logs\ndrift| --- delivered/etc/a\ndrift| +++ host/etc/a\ndrift| @@ -1 +1 @@\ndrift| -a=1\ndrift| +a=2\n")
		}
		for _, key := range []string{"previous", "follow", "tailLines"} {
			if v := r.URL.Query().Get(key); v != "" {
				fmt.Fprintf(&b, " %s=%s", key, v)
			}
		}
		_, _ = w.Write(b.Bytes()) // no line end: the last line of a log may have none
	}))
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Port()
}
