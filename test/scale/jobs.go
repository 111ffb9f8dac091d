// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

// startJobController starts a fake Job controller: each Job runs for a while and succeeds. It creates no pods: the operator reads
// them only to report why a Job does not end.
func (f *simulation) startJobController(ctx context.Context) {
	_, follow := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: toolscache.NewListWatchFromClient(f.typed.BatchV1().RESTClient(), "jobs", namespace, fields.Everything()),
		ObjectType:    &batchv1.Job{},
		Handler: toolscache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
			if j, ok := o.(*batchv1.Job); ok {
				f.countActive()
				go f.runJob(ctx, j.DeepCopy())
			}
		}},
	})
	go follow.RunWithContext(ctx)
}

// runJob runs a Job, which succeeds.
func (f *simulation) runJob(ctx context.Context, j *batchv1.Job) {
	defer f.active.Add(-1)
	update := func(change func(*batchv1.Job)) {
		was := j.DeepCopy()
		j.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
		change(j)
		if err := f.client.Status().Patch(ctx, j, client.MergeFrom(was)); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "scale: updating Job %s: %v\n", j.Name, err)
		}
	}
	began := metav1.Now()
	update(func(j *batchv1.Job) { j.Status.Active, j.Status.StartTime = 1, &began })
	if sleep(ctx, f.randomize(f.stageDuration)) != nil {
		return
	}
	update(func(j *batchv1.Job) { kubelet.EndJob(j, true, time.Now()) })
	f.ended.Add(1)
}
