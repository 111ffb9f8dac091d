// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

// jobController is a fake Job controller, which also finishes the pods of Jobs and the pods that reboot nodes.
type jobController struct {
	*Env
	exitCode func(node string) int32
}

// StartJobController starts a fake Job controller: it creates the pod of every Job, ends it with the exit code that is set for
// its node, and then ends the Job. A reboot pod reboots its node after the node's Job succeeded. It needs a Kubelet, and stops
// with the test.
func (e *Env) StartJobController(exit func(node string) int32) {
	e.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	j := &jobController{Env: e, exitCode: exit}
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			j.syncJobs(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	e.Cleanup(func() { cancel(); done.Wait() })
}

// syncJobs advances every Job by one step. Errors are retried by the next call.
func (j *jobController) syncJobs(ctx context.Context) {
	list, pods := &batchv1.JobList{}, &corev1.PodList{}
	if j.Client.List(ctx, list, client.InNamespace(j.Namespace)) != nil || j.Client.List(ctx, pods, client.InNamespace(j.Namespace)) != nil {
		return
	}
	ended := map[string]bool{}
	for i := range list.Items {
		job := &list.Items[i]
		switch p := findPod(job, pods.Items); {
		case kubelet.HasJobEnded(job):
			ended[job.Spec.Template.Spec.NodeName] = job.Status.Succeeded > 0
		case p == nil:
			j.createPod(ctx, job)
		case p.Status.Phase == corev1.PodRunning:
			_ = j.EndPod(ctx, p, j.exitCode(p.Spec.NodeName), "", time.Now()) // the next call retries
		case len(p.Status.ContainerStatuses) > 0:
			_ = j.FinishJob(ctx, job, p.Status.Phase == corev1.PodSucceeded, time.Now()) // the next call retries
		}
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Labels[opv1.LabelReboot] != "" && p.Status.Phase == corev1.PodRunning && ended[p.Spec.NodeName] {
			(&Kubelet{env: j.Env}).rebootNode(ctx, p.Spec.NodeName)
			_ = j.EndPod(ctx, p, 0, "", time.Now()) // the next call retries
		}
	}
}

func findPod(job *batchv1.Job, pods []corev1.Pod) *corev1.Pod {
	for i := range pods {
		if metav1.IsControlledBy(&pods[i], job) {
			return &pods[i]
		}
	}
	return nil
}

func (j *jobController) createPod(ctx context.Context, job *batchv1.Job) {
	if err := j.Client.Create(ctx, kubelet.JobPod(job)); err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
		j.Errorf("creating the pod of Job %s: %v", job.Name, err)
	}
}

// EndPod ends all containers of a pod, as a kubelet would.
func (e *Env) EndPod(ctx context.Context, p *corev1.Pod, code int32, message string, at time.Time) error {
	before := p.DeepCopy()
	kubelet.EndAll(p, code, message, at)
	return e.Client.Status().Patch(ctx, p, client.MergeFrom(before))
}

// FinishJob ends a Job that has not ended yet, as the Job controller would.
func (e *Env) FinishJob(ctx context.Context, j *batchv1.Job, succeeded bool, at time.Time) error {
	if kubelet.HasJobEnded(j) || j.DeletionTimestamp != nil {
		return nil
	}
	kubelet.EndJob(j, succeeded, at)
	return e.Client.Status().Update(ctx, j)
}
