// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// TestRemovalGuardComesBack: policies that guard the removal of the operator are made again when somebody deletes them.
func TestRemovalGuardComesBack(t *testing.T) {
	s := newFixture(t, 0)
	ctx, cancel := context.WithCancel(context.Background())
	g := &removalGuard{cached: s.Client, client: s.Client, namespace: s.Namespace, requests: make(chan struct{}, 1)}
	again, ended := make(chan time.Time), make(chan struct{})
	go func() {
		defer close(ended)
		g.run(ctx, again, logr.Discard())
	}()
	at := metav1.ObjectMeta{Name: v1alpha1.InUse}
	guards := []client.Object{&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: at}, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: at}}
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := deleteRemovalGuard(context.Background(), s.Client); err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		again <- time.Time{}
		again <- time.Time{} // it is taken when the policies of the one before are there
		for _, o := range guards {
			if err := s.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatalf("%T: %v", o, err)
			}
			if err := s.Client.Delete(ctx, o); err != nil {
				t.Fatal(err)
			}
		}
	}
}
