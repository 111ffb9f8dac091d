// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/drain"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// budgetsInterval is how long listed disruption budgets count. They only say which node goes first; whether a pod may leave, the API
// server says when it is evicted.
const budgetsInterval = 10 * time.Second

// budgetLister lists disruption budgets, while candidates are compared by the pods on their nodes.
type budgetLister struct {
	budgets []policyv1.PodDisruptionBudget
	at      time.Time
}

// findForbidden returns which of the pods may not be evicted now, if somebody asks for that.
func (l *budgetLister) findForbidden(ctx context.Context, r client.Reader, o *Objects, now time.Time) (map[types.UID]string, error) {
	if !o.comparesPods() || countPods(o.Workloads) == 0 {
		return nil, nil
	}
	if l.at.IsZero() || now.Before(l.at) || !now.Before(l.at.Add(budgetsInterval)) {
		var found []policyv1.PodDisruptionBudget
		add := func(b *policyv1.PodDisruptionBudget) { found = append(found, *b) }
		if err := eachItem(ctx, r, &policyv1.PodDisruptionBudgetList{}, pageSize, add); err != nil {
			return nil, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
		}
		l.budgets, l.at = found, now
	}
	return drain.FindForbidden(l.budgets, o.Workloads), nil
}

// comparesPods reports whether the nodes of a rollout are compared by the pods on them.
func (o *Objects) comparesPods() bool {
	for _, s := range o.Skyhooks {
		if d := s.Spec.DrainConfig; d != nil && d.NodeOrder == v1alpha1.NodeOrderFewestPods {
			return true
		}
	}
	for _, op := range o.NodeOps {
		if d := op.Spec.DrainOptions; d != nil && d.NodeOrder == v1alpha1.NodeOrderFewestPods {
			return true
		}
	}
	return false
}

func countPods(workloads map[string][]*corev1.Pod) int {
	n := 0
	for _, pods := range workloads {
		n += len(pods)
	}
	return n
}

// addForbidden adds which pods may not be evicted now.
func (o *Objects) addForbidden(pods []rollout.Pod) {
	for i := range pods {
		pods[i].Forbidden = o.Forbidden[types.UID(pods[i].UID)]
	}
}
