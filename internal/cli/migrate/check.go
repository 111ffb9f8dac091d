// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/migrate"
	"github.com/skyhook-k8s/skyhook/internal/options"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// checkQuiet returns a busyError while an operator, a Job or a package pod runs.
func (m *migration) checkQuiet(ctx context.Context) error {
	if err := m.checkDeployments(ctx); err != nil {
		return err
	}
	if err := m.checkLeases(ctx); err != nil {
		return err
	}
	if m.back {
		return m.checkPods(ctx)
	}
	return m.checkJobs(ctx)
}

// checkDeployments finds the Deployments of both operators in the whole cluster.
func (m *migration) checkDeployments(ctx context.Context) error {
	m.Note("listing the deployments of all namespaces")
	list := &appsv1.DeploymentList{}
	if err := m.client.List(ctx, list); err != nil {
		return fmt.Errorf("listing deployments: %w", err)
	}
	m.operators = nil
	for _, d := range list.Items {
		if isPackageOperator(&d) {
			m.operators = append(m.operators, d)
		}
	}
	for _, d := range m.operators {
		if d.Spec.Replicas == nil || *d.Spec.Replicas > 0 {
			return &busyError{never: true, text: fmt.Sprintf("an operator runs, Deployment %s/%s: stop it with kubectl --namespace %s scale deployment %s --replicas=0",
				d.Namespace, d.Name, d.Namespace, d.Name)}
		}
		if d.Status.Replicas > 0 {
			return &busyError{text: fmt.Sprintf("Deployment %s/%s still has %s: wait until it has none, or add --wait 5m", d.Namespace, d.Name, output.Count(int(d.Status.Replicas), "pod"))}
		}
	}
	return nil
}

// isPackageOperator reports whether a Deployment is the operator of NodeWright or of Skyhook.
func isPackageOperator(d *appsv1.Deployment) bool {
	if d.Spec.Template.Labels["control-plane"] != "controller-manager" {
		return false
	}
	if len(session.OperatorImages(d)) > 0 {
		return true
	}
	return sideOf(d) == migrate.NodeWright
}

// sideOf distinguishes NodeWright's operator from this one by its image, or else by its labels.
func sideOf(d *appsv1.Deployment) migrate.Side {
	for _, c := range d.Spec.Template.Spec.Containers {
		if strings.Contains(c.Image, "nodewright") {
			return migrate.NodeWright
		}
	}
	for key, value := range d.Labels {
		if strings.Contains(key+"="+value, "nodewright") {
			return migrate.NodeWright
		}
	}
	return migrate.Skyhook
}

// taintOf is the runtime-required taint in the Deployment of a side's operator; "" when there is none.
func (m *migration) taintOf(side migrate.Side) string {
	for i := range m.operators {
		if sideOf(&m.operators[i]) != side {
			continue
		}
		for _, c := range m.operators[i].Spec.Template.Spec.Containers {
			for _, e := range c.Env {
				if e.Name == "RUNTIME_REQUIRED_TAINT" {
					return e.Value
				}
			}
		}
	}
	return ""
}

// checkLeases finds a leader without a Deployment, and one that has just been stopped.
func (m *migration) checkLeases(ctx context.Context) error {
	m.Note("listing the leases %s of all namespaces", options.LeaseName)
	list := &coordinationv1.LeaseList{}
	if err := m.client.List(ctx, list, client.MatchingFields{"metadata.name": options.LeaseName}); err != nil {
		return fmt.Errorf("listing leases: %w", err)
	}
	for _, l := range list.Items {
		if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || l.Spec.RenewTime == nil {
			continue
		}
		if ends := l.Spec.RenewTime.Add(options.LeaseTerm(l.Spec)); time.Now().Before(ends) {
			return &busyError{text: fmt.Sprintf("Lease %s/%s is held by %s until %s: an operator runs, or has just stopped; stop it, wait, or add --wait 1m",
				l.Namespace, l.Name, *l.Spec.HolderIdentity, ends.UTC().Format(time.TimeOnly))}
		}
	}
	return nil
}

// checkJobs reads the Jobs of NodeWright.
func (m *migration) checkJobs(ctx context.Context) error {
	m.Note("listing the jobs with the label %s", migrate.LabelJobs)
	list := &batchv1.JobList{}
	if err := m.client.List(ctx, list, client.HasLabels{migrate.LabelJobs}); err != nil {
		return fmt.Errorf("listing jobs: %w", err)
	}
	m.jobs, m.jobObjects = nil, map[string]*batchv1.Job{}
	var running []string
	for i := range list.Items {
		j, is, err := migrate.ReadJob(&list.Items[i])
		if err != nil {
			return err
		}
		if !is {
			continue
		}
		m.jobs = append(m.jobs, j)
		m.jobObjects[j.Namespace+"/"+j.Name] = &list.Items[i]
		if j.Phase == migrate.JobRunning {
			running = append(running, j.String())
		}
	}
	if len(running) > 0 {
		return &busyError{text: fmt.Sprintf("%s: %s: wait until they end, add --wait 30m, or delete them, and their stages run again",
			output.Count(len(running), "stage")+" of packages run", output.List(running, 3))}
	}
	return nil
}

// checkPods finds package pods of this operator: only it records how they end.
func (m *migration) checkPods(ctx context.Context) error {
	m.Note("listing the pods with the label %s", v1alpha1.LabelName)
	list := &corev1.PodList{}
	if err := m.client.List(ctx, list, client.HasLabels{v1alpha1.LabelName}); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	var found []string
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.Kind == migrate.Skyhook.Kind {
			found = append(found, list.Items[i].Namespace+"/"+list.Items[i].Name)
		}
	}
	if len(found) > 0 {
		return &busyError{never: true, text: fmt.Sprintf("%s of packages exist, and only the operator records how they end: %s: start it, pause the Skyhooks and wait until the pods are gone, or delete them, and their stages run again",
			output.Count(len(found), "pod"), output.List(found, 3))}
	}
	return nil
}
