// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/skyhook-k8s/skyhook/test/cluster/faults"
	"github.com/skyhook-k8s/skyhook/test/cluster/registry"
)

const toolsImage = "ghcr.io/acme/tools:1.2.3"

// One cluster of two nodes, with a proxy before its API server, and everything that one does with it.
func TestCluster(t *testing.T) {
	realClusters(t)
	c := up(t, Spec{Name: named("life"), Nodes: []string{"a", "b"}, APIServerProxy: true})
	tools, err := registry.Tools()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := c.Push(context.Background(), toolsImage, tools)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("images", func(t *testing.T) { images(t, c, digest.String()) })
	t.Run("loaded image", func(t *testing.T) { loadedImage(t, c) })
	t.Run("private repository", func(t *testing.T) { privateRepository(t, c) })
	t.Run("network", func(t *testing.T) { networkWorks(t, c) })
	t.Run("faults", func(t *testing.T) { faultsHappen(t, c) })
	t.Run("broken parts", func(t *testing.T) { brokenParts(t, c) })
	t.Run("switches", func(t *testing.T) { switches(t, c) })
	t.Run("logs", func(t *testing.T) { logs(t, c) })
}

// An image is pulled under its own name, by tag and by digest, and reported with its real digest. A wrong tag fails.
func images(t *testing.T, c *Cluster, digest string) {
	c.testPod(t, "by-tag", "a", toolsImage)
	c.testPod(t, "by-digest", "b", "ghcr.io/acme/tools@"+digest)
	c.testPod(t, "wrong-tag", "a", "ghcr.io/acme/tools:9.9.9")
	c.testPod(t, "wrong-host", "a", "quay.io/acme/tools:1.2.3")
	for _, pod := range []string{"by-tag", "by-digest"} {
		if status := c.waitPod(t, pod, "runs", running); status.ImageID != "ghcr.io/acme/tools@"+digest {
			t.Errorf("pod %s runs %s, pushed was %s", pod, status.ImageID, digest)
		}
	}
	for _, pod := range []string{"wrong-tag", "wrong-host"} {
		c.waitPod(t, pod, "gets no image", refused)
	}
}

// otherTools is an image of its own: a kubelet that pulled an image from one repository does not take it for an image of
// another, even if the content is the same.
func otherTools(t *testing.T, seconds int64) v1.Image {
	t.Helper()
	tools, err := registry.Tools()
	if err != nil {
		t.Fatal(err)
	}
	other, err := mutate.CreatedAt(tools, v1.Time{Time: time.Unix(seconds, 0)})
	if err != nil {
		t.Fatal(err)
	}
	return other
}

func loadedImage(t *testing.T, c *Cluster) {
	tag, err := name.NewTag("example.org/only/loaded:1")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "loaded.tar")
	if err := tarball.WriteToFile(file, tag, otherTools(t, 1)); err != nil {
		t.Fatal(err)
	}
	if err := c.LoadArchive(context.Background(), file); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"a", "b"} {
		c.testPod(t, "loaded-"+node, node, tag.String(), func(p *corev1.Pod) { p.Spec.Containers[0].ImagePullPolicy = corev1.PullNever })
	}
	for _, node := range []string{"a", "b"} {
		c.waitPod(t, "loaded-"+node, "runs", running)
	}
}

func privateRepository(t *testing.T, c *Cluster) {
	ctx := context.Background()
	const image = "nvcr.io/acme/private:1"
	if err := c.Protect(ctx, registry.Credentials{Repository: "nvcr.io/acme/private", User: "joe", Password: "pass"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Push(ctx, image, otherTools(t, 2)); err != nil {
		t.Fatal(err)
	}
	for secret, password := range map[string]string{"right": "pass", "wrong": "guess"} {
		_, err := c.Client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: secret}, Type: corev1.SecretTypeDockerConfigJson,
			StringData: map[string]string{corev1.DockerConfigJsonKey: fmt.Sprintf(`{"auths":{"nvcr.io":{"username":"joe","password":%q}}}`, password)},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	with := func(secret string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: secret}}
			p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
		}
	}
	c.testPod(t, "no-secret", "a", image)
	c.testPod(t, "wrong-secret", "a", image, with("wrong"))
	c.testPod(t, "right-secret", "a", image, with("right"))
	c.waitPod(t, "right-secret", "runs", running)
	c.waitPod(t, "no-secret", "gets no image", refused)
	c.waitPod(t, "wrong-secret", "gets no image", refused)
}

// A pod reaches a pod on the other node, and Services whose pods are on the other node, on its own, and itself.
func networkWorks(t *testing.T, c *Cluster) {
	ctx := context.Background()
	where := map[string]string{"near": "a", "beside": "a", "far": "b"}
	addresses := map[string]string{"API server": "10.96.0.1 443"}
	for name, node := range where {
		c.testPod(t, name, node, toolsImage)
		service, err := c.Client.CoreV1().Services("default").Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"pod": name}, Ports: []corev1.ServicePort{{Port: 8080, TargetPort: intstr.FromInt32(80)}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		addresses["Service "+name] = service.Spec.ClusterIP + " 8080"
	}
	for name := range where {
		c.waitPod(t, name, "runs", running)
		pod, err := c.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		addresses["pod "+name] = pod.Status.PodIP + " 80"
	}
	for to, address := range addresses {
		_, name, _ := strings.Cut(to, " ")
		want := "from-" + name
		if to == "API server" {
			want = "HTTP request to an HTTPS server"
		}
		request := fmt.Sprintf(`for try in $(seq 50); do printf 'GET /index.html HTTP/1.0\r\n\r\n' | nc -w 2 %s 2>&1 | grep -e '%s' && exit; sleep 0.2; done; exit 1`, address, want)
		c.inPod(t, "near", request)
	}
}

func faultsHappen(t *testing.T, c *Cluster) {
	ctx := context.Background()
	namespaces := c.Client.CoreV1().Namespaces()
	lost := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lost"}}
	fault := faults.Fault{User: "^admin$", Method: "POST", Path: "^/api/v1/namespaces"}
	refusal := fault
	refusal.Status = 500
	if err := c.SetFaults(ctx, refusal); err != nil {
		t.Fatal(err)
	}
	if _, err := namespaces.Create(ctx, lost, metav1.CreateOptions{}); !apierrors.IsInternalError(err) {
		t.Errorf("a request that was to fail gave %v", err)
	}
	if _, err := namespaces.Get(ctx, "lost", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what was refused is there: %v", err)
	}
	deaf := fault
	deaf.Hangup = faults.After
	if err := c.SetFaults(ctx, deaf); err != nil {
		t.Fatal(err)
	}
	if _, err := namespaces.Create(ctx, lost, metav1.CreateOptions{}); err == nil {
		t.Error("the answer to a request was heard although it was to be lost")
	}
	if _, err := namespaces.Get(ctx, "lost", metav1.GetOptions{}); err != nil {
		t.Errorf("what was done, unheard, is not there: %v", err)
	}
	counts, err := c.Faults(ctx)
	if err != nil || len(counts) != 1 || counts[0].Happened == 0 {
		t.Errorf("the faults in force are %+v, %v", counts, err)
	}
	if err := c.SetFaults(ctx, faults.Fault{}); err == nil || !strings.Contains(err.Error(), "a fault needs a delay, a status, a hangup or a skew") {
		t.Errorf("a fault that does nothing gave %v", err)
	}
	if err := c.SetFaults(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("after the faults: %v", err)
	}
}

// A node reboots with a fresh network and what it had on its disk; it loses power; it is shut down. The other one does
// not notice.
func switches(t *testing.T, c *Cluster) {
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	other, err := c.BootID(ctx, "b")
	must(err)
	before, err := c.BootID(ctx, "a")
	must(err)
	_, err = c.Exec(ctx, "a", "sh", "-c", "echo kept >/etc/kept; sysctl -q -w net.ipv4.ip_default_ttl=77")
	must(err)
	must(c.Reboot(ctx, "a"))
	must(c.WaitBoot(ctx, "a", before))
	after, err := c.Exec(ctx, "a", "sh", "-c", "cat /etc/kept /proc/sys/net/ipv4/ip_default_ttl /proc/sys/kernel/random/boot_id")
	must(err)
	boot, err := c.BootID(ctx, "a")
	must(err)
	if after != "kept\n64\n"+boot+"\n" {
		t.Errorf("after a reboot the node has %q and reports boot id %s", after, boot)
	}
	must(c.Crash(ctx, "a"))
	must(c.WaitReady(ctx, "a", false))
	if _, err := c.Exec(ctx, "a", "true"); err == nil || !strings.Contains(err.Error(), "node a is off: switch it on with `node start a`") {
		t.Errorf("running something on a node without power gave %v", err)
	}
	must(c.Start(ctx, "a"))
	must(c.WaitBoot(ctx, "a", boot))
	if err := c.Start(ctx, "a"); err == nil || err.Error() != "starting node a: it is on" {
		t.Errorf("starting a node that is on gave %v", err)
	}
	must(c.Poweroff(ctx, "a"))
	if err := c.Start(ctx, "nowhere"); err == nil || !strings.Contains(err.Error(), `there is no node "nowhere" in cluster `+named("life")) {
		t.Errorf("starting a node that does not exist gave %v", err)
	}
	must(c.Start(ctx, "a"))
	if same, err := c.BootID(ctx, "b"); err != nil || same != other {
		t.Errorf("the other node's boot id went from %s to %s, %v", other, same, err)
	}
	list, err := c.Client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=b,reason=NodeNotReady"})
	must(err)
	if len(list.Items) > 0 {
		t.Errorf("the other node was not ready meanwhile: %s", list.Items[0].Message)
	}
}

func logs(t *testing.T, c *Cluster) {
	var all strings.Builder
	if err := c.Logs(context.Background(), &all, 5); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"=== kube-apiserver\n", "=== registry\n", "=== console of a\n", "=== journal of b\n", "=== supervisor\n"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("the logs have no section %q", want)
		}
	}
	if err := c.Logs(context.Background(), &all, 5, "nobody"); err == nil || !strings.Contains(err.Error(), `there are no logs of "nobody"; there are of `) {
		t.Errorf("asking for logs of nobody gave %v", err)
	}
}
