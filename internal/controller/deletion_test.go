// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// A pod with a finalizer of somebody else does not go. It is deleted once, and until it goes nothing is deleted and no pass
// wakes the next one.
func TestDeletionWithForeignFinalizer(t *testing.T) {
	w := newFixture(t, 1)
	recorder := &requestRecorder{}
	w.config = recorder.wrap(plane.Config)
	w.kubelet.SetOutcome(func(*corev1.Pod) testenv.Outcome { return testenv.Hangs })
	w.Apply(demo)
	w.startOperator()
	w.Eventually("a pod", func() bool { return len(w.ListPods()) > 0 })
	pod := w.ListPods()[0]
	w.Patch(&pod, `{"metadata":{"finalizers":["example.org/foreign"]}}`)
	w.Must(w.Client.Delete(context.Background(), w.GetSkyhook("demo")))
	w.Eventually("the pod is deleted", func() bool { return w.ListPods()[0].DeletionTimestamp != nil })

	time.Sleep(3 * time.Second) // statuses and caches settle
	before, passes := len(recorder.requests()), sumCounter(t, w.registry, "skyhook_passes_total")
	time.Sleep(3 * time.Second)
	after := recorder.requests()
	for _, r := range after[before:] {
		t.Errorf("%s %s while nothing changes", r.method, r.path)
	}
	if made := sumCounter(t, w.registry, "skyhook_passes_total") - passes; made > 3 {
		t.Errorf("%.0f passes in 3 s, want none", made)
	}
	deleted := 0
	for _, r := range after {
		isConflict := r.answer == http.StatusConflict // the operator had not yet seen the finalizer
		if r.method == http.MethodDelete && strings.HasSuffix(r.path, "/pods/"+pod.Name) && !isConflict {
			deleted++
		}
	}
	if deleted != 1 {
		t.Errorf("the pod was deleted %d times", deleted)
	}

	pod = w.ListPods()[0]
	w.Patch(&pod, `{"metadata":{"finalizers":null}}`)
	w.Eventually("the Skyhook is gone", func() bool {
		err := w.Client.Get(context.Background(), client.ObjectKey{Name: "demo"}, &v1alpha1.Skyhook{})
		return apierrors.IsNotFound(err)
	})
}
