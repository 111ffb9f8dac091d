// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package lab

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

// patience is how long any step of coming up may take on a slow machine before it counts as failed.
const patience = 3 * time.Minute

// until asks again and again, and says what it waited for in vain.
func until(whole context.Context, what string, limit time.Duration, ask func(context.Context) (bool, string)) error {
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

// waitAPI waits for the API server, and for the account that pods without another one use.
func (c *Cluster) waitAPI(ctx context.Context) error {
	err := until(ctx, "the API server answers", patience, func(ctx context.Context) (bool, string) {
		_, err := c.Client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	if err != nil && ctx.Err() == nil { // else it was asked to stop, and the server has nothing to say about that
		return fmt.Errorf("%w\n%s", err, c.place.lastWords("kube-apiserver"))
	}
	return err
}

// waitNodes waits until all nodes of the spec are ready, and labels each as soon as it appears.
func (c *Cluster) waitNodes(ctx context.Context, s Spec) error {
	labels, labelled := s.labels(), map[string]bool{}
	limit := patience + time.Duration(s.Simulated)*50*time.Millisecond
	return until(ctx, "all nodes are ready", limit, func(ctx context.Context) (bool, string) {
		list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err.Error()
		}
		waiting := map[string]string{}
		for _, name := range s.hosts() {
			waiting[name] = "has not joined"
		}
		ready := 0
		for _, n := range list.Items {
			if len(labels[n.Name]) > 0 && !labelled[n.Name] {
				if err := c.label(ctx, n.Name, labels[n.Name]); err != nil {
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
		return ready >= len(s.hosts())+s.Simulated && len(waiting) == 0, describe(waiting)
	})
}

// describe names at most ten nodes and what keeps them.
func describe(waiting map[string]string) string {
	var parts []string
	for name, why := range waiting {
		parts = append(parts, name+" "+why)
		if len(parts) == 10 {
			break
		}
	}
	return strings.Join(parts, ", ")
}

// labels are the labels of each node. Those of all nodes come first, so that a node's own win.
func (s Spec) labels() map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, name := range s.hosts() {
		all[name] = map[string]string{}
	}
	if s.ControlPlane != "" {
		all[s.ControlPlane]["node-role.kubernetes.io/control-plane"] = ""
	}
	for _, own := range []bool{false, true} {
		for _, l := range s.Labels {
			for _, name := range s.hosts() {
				if own == (l.Node != "") && (l.Node == "" || l.Node == name) {
					all[name][l.Key] = l.Value
				}
			}
		}
	}
	return all
}

func (c *Cluster) label(ctx context.Context, name string, labels map[string]string) error {
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

// IsReady tells whether the node says so itself.
func IsReady(n *corev1.Node) bool {
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// AcceptsPods tells whether the node is ready and pods may go there: the controllers take the taints of a node that was not ready
// away a moment after it says that it is.
func AcceptsPods(n *corev1.Node) bool {
	for _, taint := range n.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable {
			return false
		}
	}
	return IsReady(n)
}

// lastWords is the end of a log.
func (p place) lastWords(name string) string {
	text, err := os.ReadFile(p.log(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text[max(0, len(text)-2000):]))
}
