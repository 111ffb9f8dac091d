// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package disasters_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/test/cluster/testcluster"
	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// watch looks until the operator has said for a while that the Skyhook is ready or has failed, or until it has had its time.
func (r *run) watch() result {
	r.Helper()
	begin, since, verdict, killed := time.Now(), time.Now(), "", map[string]bool{}
	for time.Since(begin) < *limit {
		r.editMidway()
		r.findKilled(killed)
		now := r.verdict()
		if now != verdict {
			r.Logf("%s %s: %s", time.Since(begin).Round(time.Second), r.id, cmp.Or(now, "no verdict"))
			verdict, since = now, time.Now()
		}
		if isFinal(verdict) && time.Since(since) > settle {
			break
		}
		time.Sleep(time.Second)
	}
	got := result{end: fmt.Sprintf("none in %.1f", limit.Minutes())}
	switch {
	case strings.HasPrefix(verdict, "Ready"):
		got.end = "complete"
	case isFinal(verdict):
		got.end = fmt.Sprintf("%.1f", since.Sub(begin).Minutes())
	}
	for what := range killed {
		got.killed = append(got.killed, what)
	}
	for _, n := range r.nodes {
		if why := r.damage(n); why != "" {
			r.Logf("%s: %s is damaged: %s", r.id, n, why)
			got.damaged++
		}
	}
	return got
}

func isFinal(verdict string) bool {
	return strings.HasPrefix(verdict, "Ready") || strings.HasPrefix(verdict, "Failed")
}

// verdict is what the operator says, with the reason. A Skyhook that was edited has none before the edit was seen.
func (r *run) verdict() string {
	raw, err := r.machines.Client.RESTClient().Get().AbsPath("/apis/skyhook.nvidia.com/v1alpha1/skyhooks/" + r.id).DoRaw(context.Background())
	var s struct {
		Metadata struct{ Generation int64 }
		Status   struct {
			ObservedGeneration int64
			Verdict, Reason    string
		}
	}
	if err != nil || json.Unmarshal(raw, &s) != nil || s.Status.ObservedGeneration < s.Metadata.Generation || r.edit != "" && !r.isEdited {
		return ""
	}
	return strings.TrimSpace(s.Status.Verdict + " " + s.Status.Reason)
}

// damage says why a node is worse than before: it does not work, it is still kept from workloads, or what does harm has reached it.
func (r *run) damage(name string) string {
	n, err := r.machines.Client.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		r.Fatal(err)
	}
	if !r.absent[name] && !testcluster.IsReady(n) {
		return "not ready"
	}
	if !r.absent[name] && n.Spec.Unschedulable {
		return "cordoned"
	}
	if _, err := cluster.TryExec(name, "test ! -e /etc/disaster"); err != nil {
		return "the change reached it"
	}
	return ""
}

// findKilled notes that the service has no replica that is available, and that the pod ended before its time.
func (r *run) findKilled(killed map[string]bool) {
	ctx := context.Background()
	d, err := r.machines.Client.AppsV1().Deployments(suite.Namespace).Get(ctx, r.id, metav1.GetOptions{})
	if err == nil && d.Status.AvailableReplicas == 0 {
		killed["the service"] = true
	}
	if r.workload == "" || r.isDone {
		return
	}
	p, err := r.machines.Client.CoreV1().Pods(suite.Namespace).Get(ctx, r.id, metav1.GetOptions{})
	if r.isDone = err == nil && p.Status.Phase == corev1.PodSucceeded; r.isDone {
		return
	}
	if apierrors.IsNotFound(err) || err == nil && (p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed) {
		killed["the pod"] = true
	}
}

// editMidway edits the Skyhook when it has cordoned a node.
func (r *run) editMidway() {
	r.Helper()
	if r.edit == "" || r.isEdited {
		return
	}
	for _, name := range r.nodes {
		n, err := r.machines.Client.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
		if err == nil && n.Spec.Unschedulable {
			r.rollOut("1.1.0", r.edit)
			r.isEdited = true
			return
		}
	}
}

// requireSmallDisk keeps the disk of this machine from being filled.
func requireSmallDisk(r *run) {
	for _, n := range r.nodes {
		cluster.Exec(r.T, n, "mountpoint -q /var/lib/skyhook")
	}
}

func stopTwo(r *run) {
	for _, n := range r.nodes[2:] {
		cluster.Exec(r.T, n, "systemctl stop kubelet")
		r.absent[n] = true
	}
	for _, n := range r.nodes[2:] {
		if err := r.machines.WaitReady(context.Background(), n, false); err != nil {
			r.Fatal(err)
		}
	}
}

func cordonFirst(r *run) {
	cluster.Kubectl(r.T, "cordon", r.nodes[0])
	cluster.Exec(r.T, r.nodes[0], "touch /etc/hands-off")
	r.absent[r.nodes[0]] = true
}

// heal removes what disasters leave on a host.
const heal = `rm -rf /etc/disaster /etc/hands-off /etc/systemd/system/disaster.service /etc/systemd/system/multi-user.target.wants/disaster.service
systemctl stop disaster
test ! -e /etc/cni/off || { mkdir -p /etc/cni/net.d; mv /etc/cni/off/* /etc/cni/net.d; rmdir /etc/cni/off; } # containerd makes net.d again
rm -f /var/lib/skyhook/full; sync`

// restore makes nodes what they were, so that the next disaster can have them.
func (r *run) restore() {
	ctx := context.Background()
	_, _ = cluster.TryKubectl("", "delete", "skyhook", r.id, "--wait=false", "--ignore-not-found")
	for _, n := range r.nodes {
		_, _ = cluster.TryExec(n, heal) // a node that is off is healed below
		if o, err := r.machines.Client.CoreV1().Nodes().Get(ctx, n, metav1.GetOptions{}); err == nil && testcluster.IsReady(o) {
			continue
		}
		_ = r.machines.Crash(ctx, n) // it may be off
		if err := r.machines.Start(ctx, n); err != nil {
			r.Error(err)
		}
	}
	for _, n := range r.nodes {
		if err := r.machines.WaitReady(ctx, n, true); err != nil {
			r.Error(err)
		}
		cluster.Exec(r.T, n, heal)
	}
	if _, err := cluster.TryKubectl("", "wait", "--for=delete", "skyhook/"+r.id, "--timeout=90s"); err != nil {
		r.Logf("the Skyhook does not go by itself: %v", err)
		_, _ = cluster.TryKubectl("", "patch", "skyhook", r.id, "--type=merge", "-p", `{"metadata": {"finalizers": null}}`)
	}
	cluster.Kubectl(r.T, append([]string{"uncordon"}, r.nodes...)...)
	for _, n := range r.nodes {
		cluster.Kubectl(r.T, "-n", suite.OperatorNamespace, "delete", "pods", "--field-selector=spec.nodeName="+n, "-l", "skyhook.nvidia.com/name="+r.id, "--force", "--grace-period=0")
		cluster.Exec(r.T, n, "rm -rf /var/lib/skyhook/* /etc/skyhook /var/log/skyhook")
	}
}

// writeTable writes the results into the rows of docs/profiles.md.
func writeTable(t *testing.T, results map[string]map[string]result) {
	t.Helper()
	path := filepath.Join(suite.Root(), "docs", "profiles.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, by := range results {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(name) + ` \|.*$`)
		if len(by) == 2 && !row.Match(text) {
			t.Errorf("%s has no row for %q", path, name)
		}
		if len(by) == 2 {
			text = row.ReplaceAll(text, fmt.Appendf(nil, "| %s | %s | %s |", name, by["Recommended"], by["Compatible"]))
		}
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
