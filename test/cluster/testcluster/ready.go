// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// stepTimeout bounds each step of bringing up a cluster, for slow machines.
const stepTimeout = 3 * time.Minute

// pollUntil polls until a condition holds; its error names what was waited for and the last state.
func pollUntil(whole context.Context, what string, limit time.Duration, ask func(context.Context) (bool, string)) error {
	ctx, cancel := context.WithTimeout(whole, limit)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		done, last := ask(ctx)
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			if whole.Err() != nil {
				return fmt.Errorf("waiting until %s: %w", what, context.Cause(whole))
			}
			return fmt.Errorf("waiting until %s took longer than %s; last seen: %s", what, limit, last)
		case <-tick.C:
		}
	}
}

// waitAPI waits for the API server and for the default ServiceAccount.
func (c *Cluster) waitAPI(ctx context.Context) error {
	err := pollUntil(ctx, "the API server answers", stepTimeout, func(ctx context.Context) (bool, string) {
		_, err := c.Client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	if err != nil && ctx.Err() == nil { // a cancelled wait is no fault of the server
		return fmt.Errorf("%w\n%s", err, c.paths.tailLog("kube-apiserver"))
	}
	return err
}

// waitNodes waits until all nodes of the spec are ready, and labels each as soon as it appears.
func (c *Cluster) waitNodes(ctx context.Context, s Spec) error {
	labels, labelled := s.labelsByNode(), map[string]bool{}
	limit := stepTimeout + time.Duration(s.Simulated)*50*time.Millisecond
	return pollUntil(ctx, "all nodes are ready", limit, func(ctx context.Context) (bool, string) {
		list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err.Error()
		}
		waiting := map[string]string{}
		for _, name := range s.realNodes() {
			waiting[name] = "has not joined"
		}
		ready := 0
		for _, n := range list.Items {
			if len(labels[n.Name]) > 0 && !labelled[n.Name] {
				if err := c.labelNode(ctx, n.Name, labels[n.Name]); err != nil {
					return false, err.Error()
				}
				labelled[n.Name] = true
			}
			waiting[n.Name] = "is not ready"
			if AcceptsPods(&n) {
				ready++
				delete(waiting, n.Name)
			}
		}
		return ready >= len(s.realNodes())+s.Simulated && len(waiting) == 0, describeWaiting(waiting)
	})
}

// describeWaiting names at most ten nodes and why each is not ready.
func describeWaiting(waiting map[string]string) string {
	var parts []string
	for name, why := range waiting {
		parts = append(parts, name+" "+why)
		if len(parts) == 10 {
			break
		}
	}
	return strings.Join(parts, ", ")
}

// labelsByNode returns the labels of each node. A node's own labels override those of all nodes.
func (s Spec) labelsByNode() map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, name := range s.realNodes() {
		all[name] = map[string]string{}
	}
	if s.ControlPlane != "" {
		all[s.ControlPlane]["node-role.kubernetes.io/control-plane"] = ""
	}
	for _, own := range []bool{false, true} {
		for _, l := range s.Labels {
			for _, name := range s.realNodes() {
				if own == (l.Node != "") && (l.Node == "" || l.Node == name) {
					all[name][l.Key] = l.Value
				}
			}
		}
	}
	return all
}

func (c *Cluster) labelNode(ctx context.Context, name string, labels map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		return err
	}
	_, err = c.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("labelling node %s: %w", name, err)
	}
	return nil
}

// IsReady reports whether the Ready condition of a node is true.
func IsReady(n *corev1.Node) bool {
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// AcceptsPods reports whether a node is ready and has lost the taints of a node that is not, which controllers remove a moment
// later.
func AcceptsPods(n *corev1.Node) bool {
	for _, taint := range n.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable {
			return false
		}
	}
	return IsReady(n)
}

// tailLog returns the end of a log.
func (p clusterPaths) tailLog(name string) string {
	text, err := os.ReadFile(p.log(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text[max(0, len(text)-2000):]))
}
