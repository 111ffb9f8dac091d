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
)

// jobs plays the controller of Jobs, and what their commands and the pods that reboot do.
type jobs struct {
	*World
	exit func(node string) int32
}

// Jobs has every Job's pod made, end with the exit code that its node gives it, and its Job end with it. A pod that reboots
// does so once the node's Job has ended well. It needs a Kubelet, and ends with the test.
func (w *World) Jobs(exit func(node string) int32) {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	j := &jobs{World: w, exit: exit}
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			j.play(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	w.Cleanup(func() { cancel(); done.Wait() })
}

// play takes every Job one step further. What fails is tried again.
func (j *jobs) play(ctx context.Context) {
	list, pods := &batchv1.JobList{}, &corev1.PodList{}
	if j.Client.List(ctx, list, client.InNamespace(j.Namespace)) != nil || j.Client.List(ctx, pods, client.InNamespace(j.Namespace)) != nil {
		return
	}
	ended := map[string]bool{}
	for i := range list.Items {
		job := &list.Items[i]
		switch p := podOf(job, pods.Items); {
		case len(job.Status.Conditions) > 0:
			ended[job.Spec.Template.Spec.NodeName] = job.Status.Succeeded > 0
		case p == nil:
			j.make(ctx, job)
		case p.Status.Phase == corev1.PodRunning:
			j.end(ctx, p, j.exit(p.Spec.NodeName))
		case len(p.Status.ContainerStatuses) > 0:
			_ = j.EndJob(ctx, job, p.Status.Phase == corev1.PodSucceeded, time.Now()) // it is tried again
		}
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Labels[opv1.LabelReboot] != "" && p.Status.Phase == corev1.PodRunning && ended[p.Spec.NodeName] {
			(&Kubelet{w: j.World}).reboot(ctx, p.Spec.NodeName)
			j.end(ctx, p, 0)
		}
	}
}

func podOf(job *batchv1.Job, pods []corev1.Pod) *corev1.Pod {
	for i := range pods {
		if metav1.IsControlledBy(&pods[i], job) {
			return &pods[i]
		}
	}
	return nil
}

func (j *jobs) make(ctx context.Context, job *batchv1.Job) {
	p := &corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *job.Spec.Template.Spec.DeepCopy()}
	p.Namespace, p.Name = job.Namespace, job.Name+"-0"
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	if err := j.Client.Create(ctx, p); err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
		j.Errorf("making the pod of Job %s: %v", job.Name, err)
	}
}

// end ends all containers of a pod.
func (j *jobs) end(ctx context.Context, p *corev1.Pod, code int32) {
	q := p.DeepCopy()
	q.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		q.Status.Phase = corev1.PodFailed
	}
	for _, c := range p.Spec.Containers {
		q.Status.ContainerStatuses = append(q.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: ended(code)})
	}
	_ = j.Client.Status().Patch(ctx, q, client.MergeFrom(p)) // it is tried again
}

// EndJob plays the controller of Jobs, which is not there: a Job that has not ended ends, well or not.
func (w *World) EndJob(ctx context.Context, j *batchv1.Job, well bool, at time.Time) error {
	if len(j.Status.Conditions) > 0 || j.DeletionTimestamp != nil {
		return nil
	}
	now := metav1.NewTime(at)
	j.Status.StartTime = &now
	met, end := batchv1.JobSuccessCriteriaMet, batchv1.JobComplete
	if well {
		j.Status.Succeeded, j.Status.CompletionTime = 1, &now
	} else {
		met, end, j.Status.Failed = batchv1.JobFailureTarget, batchv1.JobFailed, 1
	}
	for _, c := range []batchv1.JobConditionType{met, end} {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: now, LastProbeTime: now})
	}
	j.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	return w.Client.Status().Update(ctx, j)
}
