// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

const pulledHook = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo}
spec:
  nodeSelectors: {matchLabels: {kubernetes.io/hostname: n1}}
  packages:
    tuning: {version: 1.0.0, image: registry.example/tuning, interrupt: {type: reboot}}
    other: {version: 3.0.0, image: registry.example/tuning, agentImageOverride: "registry.example/agent:9"}
    shell: {version: 2.0.0, image: registry.example/shell, containerSHA: "sha256:2222222222222222222222222222222222222222222222222222222222222222"}
`

// pull returns what the only target says about the pull of its images.
func (w *testCluster) pull(s *v1alpha1.Skyhook) *rollout.Pull {
	w.t.Helper()
	c := w.compile(s)
	if len(c.Rollout.Targets) != 1 {
		w.t.Fatalf("the targets are %+v", c.Rollout.Targets)
	}
	return c.Rollout.Targets[0].Pull
}

// startPull creates the pod that pulls the images of the only node.
func (w *testCluster) startPull(s *v1alpha1.Skyhook) *corev1.Pod {
	w.t.Helper()
	pod := w.compile(s).PullPod(node.Parse(w.node("n1").DeepCopy(), nil))
	if pod == nil {
		w.t.Fatal("nothing is pulled")
	}
	w.create(pod)
	return pod
}

func imagesOf(pod *corev1.Pod) string {
	var out []string
	for _, c := range pod.Spec.Containers {
		out = append(out, c.Name[:strings.LastIndex(c.Name, "-")]+" "+c.Image)
	}
	return strings.Join(out, "\n")
}

// TestPullImages: each image that a node's tasks need is pulled, once: of what is installed and of what is uninstalled.
func TestPullImages(t *testing.T) {
	w := newTestCluster(t)
	w.config.Prepull = new(true)
	s := w.apply(pulledHook)
	w.addNode("n1")
	if p := w.pull(s); p == nil || !p.Needed || p.Object != "" || p.Ended {
		t.Errorf("before anything is done the pull is %+v", p)
	}
	pod := w.startPull(s)
	want := `other-image-3-0-0 registry.example/tuning:3.0.0
agent registry.example/agent:9
shell-image-2-0-0 registry.example/shell@sha256:2222222222222222222222222222222222222222222222222222222222222222
agent-image ghcr.io/skyhook-k8s/skyhook/agent:v1.0.0
tuning-image-1-0-0 registry.example/tuning:1.0.0
pause registry.k8s.io/pause:3.10`
	if got := imagesOf(pod); got != want {
		t.Errorf("it pulls\n%s\nwant\n%s", got, want)
	}
	if pod.Spec.RestartPolicy != corev1.RestartPolicyNever || len(pod.Spec.InitContainers)+len(pod.Spec.Volumes) > 0 || pod.Spec.HostPID {
		t.Errorf("the pod is %+v", pod.Spec)
	}
	if p := w.pull(s); p.Object != pod.Name || p.Ended || p.Failed != nil {
		t.Errorf("after it began the pull is %+v", p)
	}
	kubelet.EndAll(pod, 0, "", w.now)
	if p := w.pull(s); !p.Ended {
		t.Errorf("after it ended the pull is %+v", p)
	}
	w.drive(s)
	if p := w.pull(s); p == nil || p.Needed || len(p.Old) != 1 {
		t.Errorf("on a finished node the pull is %+v", p)
	}
	w.deletePod(pod.Name)
	if p := w.pull(s); p != nil {
		t.Errorf("on a finished node without a pod the pull is %+v", p)
	}

	w.apply(strings.Replace(pulledHook, "    shell: {version: 2.0.0, image: registry.example/shell", "    extra: {version: 2.0.0, image: registry.example/extra", 1))
	s = w.skyhooks[0]
	if got := imagesOf(w.startPull(s)); !strings.Contains(got, "shell-image-2-0-0 registry.example/shell@") || !strings.Contains(got, "extra-image-2-0-0 ") || strings.Contains(got, "tuning") {
		t.Errorf("for a package that replaces another it pulls\n%s", got)
	}
}

// TestPullCompact: pods of the compact layout have no pause container, and a package with another agent has the other layout.
func TestPullCompact(t *testing.T) {
	w := newTestCluster(t)
	w.config.Prepull = new(true)
	n := w.addNode("n1")
	n.Status.NodeInfo.KubeletVersion, n.Status.NodeInfo.ContainerRuntimeVersion = "v1.35.0", "containerd://2.1.0"
	w.config.PodLayout = plan.LayoutCompact
	s := w.apply(pulledHook)
	if got := imagesOf(w.startPull(s)); !strings.Contains(got, "pause ") {
		t.Errorf("with another agent it pulls\n%s", got)
	}
	s = w.apply(strings.Replace(pulledHook, `agentImageOverride: "registry.example/agent:9"`, "retries: 1", 1))
	if got := imagesOf(w.startPull(s)); strings.Contains(got, "pause ") || !strings.Contains(got, "tuning-image-1-0-0 ") {
		t.Errorf("with the compact layout it pulls\n%s", got)
	}
}

// TestPullContainer: an image was pulled when its container ended, runs, or cannot start for another reason than its image.
func TestPullContainer(t *testing.T) {
	waits := func(reason, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Image: "registry.example/a:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
	}
	for _, c := range []struct {
		name   string
		status corev1.ContainerStatus
		pulled bool
		why    string
	}{
		{"ended", corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError"}}}, true, ""},
		{"runs", corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}, true, ""},
		{"has not begun", waits("ContainerCreating", ""), false, ""},
		{"cannot be created", waits("CreateContainerError", "no command specified"), true, ""},
		{"cannot be run", waits("RunContainerError", "no such file"), true, ""},
		{"named by its node", corev1.ContainerStatus{ImageID: "registry.example/a@sha256:1", State: waits("ContainerCreating", "").State}, true, ""},
		{"not found", waits("ErrImagePull", "not found\n"), false, "image registry.example/a:1 cannot be pulled: not found"},
		{"again", waits("ImagePullBackOff", "Back-off pulling image"), false, "image registry.example/a:1 cannot be pulled: Back-off pulling image"},
		{"as containerd says it", waits("ErrImagePull", `rpc error: code = NotFound desc = failed to pull and unpack image "registry.example/a:1": not found`), false,
			`image registry.example/a:1 cannot be pulled: failed to pull and unpack image "registry.example/a:1": not found`},
		{"before it tries again", waits("ImagePullBackOff", `Back-off pulling image "registry.example/a:1": ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image "registry.example/a:1": not found`), false,
			`image registry.example/a:1 cannot be pulled: failed to pull and unpack image "registry.example/a:1": not found`},
		{"no name", waits("InvalidImageName", ""), false, "image registry.example/a:1 cannot be pulled: InvalidImageName"},
	} {
		c.status.Name = "c"
		p := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{c.status}}}
		pulled, why := podstate.ReadPullContainer(p, "c")
		text := ""
		if why != nil {
			text = why.Text
		}
		if pulled != c.pulled || text != c.why {
			t.Errorf("%s: %v %q, want %v %q", c.name, pulled, text, c.pulled, c.why)
		}
	}
}

// TestPullShutDown: a pod that ended because its node shut down is replaced, and one that the kubelet rejects delays nothing.
func TestPullShutDown(t *testing.T) {
	w := newTestCluster(t)
	w.config.Prepull = new(true)
	s := w.apply(pulledHook)
	w.addNode("n1")
	pod := w.startPull(s)
	pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "NodeShutdown"
	if p := w.pull(s); p.Object != "" || p.Ended || len(p.Old) != 1 {
		t.Errorf("after the node shut down the pull is %+v", p)
	}
	pod.Status.Reason = "OutOfcpu"
	if p := w.pull(s); !p.Ended {
		t.Errorf("after the kubelet rejected it the pull is %+v", p)
	}
}
