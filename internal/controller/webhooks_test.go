// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// newWebhooks makes a configuration of each kind, that calls a Service which is not there for the groups.
func newWebhooks(prefix, namespace string, labels map[string]string, groups ...string) []client.Object {
	fail, none, path := admissionv1.Fail, admissionv1.SideEffectClassNone, "/x"
	rules := []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.OperationAll},
		Rule:       admissionv1.Rule{APIGroups: groups, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}}
	nobody := admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: namespace, Name: "nobody", Path: &path}}
	return []client.Object{
		&admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: prefix + "-validating-webhook", Labels: labels},
			Webhooks:   []admissionv1.ValidatingWebhook{{Name: "v.nvidia.com", FailurePolicy: &fail, SideEffects: &none, Rules: rules, ClientConfig: nobody, AdmissionReviewVersions: []string{"v1"}}},
		},
		&admissionv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: prefix + "-mutating-webhook", Labels: labels},
			Webhooks:   []admissionv1.MutatingWebhook{{Name: "m.nvidia.com", FailurePolicy: &fail, SideEffects: &none, Rules: rules, ClientConfig: nobody, AdmissionReviewVersions: []string{"v1"}}},
		},
	}
}

// TestWebhooks: the webhook configurations of every version of the predecessor are deleted before the operator writes anything,
// and no others.
func TestWebhooks(t *testing.T) {
	const nodewright = "nodewright.nvidia.com"
	label := map[string]string{nodewright + "/webhook-config": "true"}
	for _, c := range []struct {
		name, prefix string
		here         bool // calls a Service of the operator's namespace
		labels       map[string]string
		groups       []string
		stays        bool
	}{
		{"v0.15", "skyhook-operator", true, nil, []string{v1alpha1.Group}, false},
		{"v0.15 in another namespace", "skyhook-operator", false, nil, []string{v1alpha1.Group}, false},
		{"v0.17", "nodewright", true, nil, []string{v1alpha1.Group}, false},
		{"v0.18", "gpu-nodewright", true, label, []string{v1alpha1.Group, nodewright}, false},
		{"v0.18 in another namespace", "gpu-nodewright", false, label, []string{v1alpha1.Group, nodewright}, false},
		{"without label in another namespace", "gpu", false, nil, []string{v1alpha1.Group}, true},
		{"of other groups", "policy", true, label, []string{"apps", v1alpha1.Group}, true},
		{"of no Skyhooks", "policy", true, label, []string{nodewright}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := context.Background()
			requests := &requestRecorder{}
			s := newFixture(t, 1)
			s.config = requests.wrap(s.config)
			namespace := s.Namespace
			if !c.here {
				namespace = "elsewhere"
			}
			s.Apply(oneStage)
			all := newWebhooks(c.prefix, namespace, c.labels, c.groups...)
			for _, o := range all {
				if c.stays { // so that it refuses nothing here
					switch o := o.(type) {
					case *admissionv1.ValidatingWebhookConfiguration:
						o.Webhooks[0].Rules[0].Resources = []string{"nothing"}
					case *admissionv1.MutatingWebhookConfiguration:
						o.Webhooks[0].Rules[0].Resources = []string{"nothing"}
					}
				}
				s.Must(s.Client.Create(ctx, o))
				t.Cleanup(func() { s.Must(client.IgnoreNotFound(s.Client.Delete(ctx, o))) })
			}
			if !c.stays {
				s.Eventually("writes of Skyhooks are refused", func() bool {
					err := s.Client.Create(ctx, &v1alpha1.Skyhook{ObjectMeta: metav1.ObjectMeta{Name: "refused"}}, client.DryRunAll)
					return err != nil && strings.Contains(err.Error(), "webhook")
				})
			}
			s.startOperator()
			s.WaitComplete("one")
			for _, o := range all {
				err := s.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
				if c.stays && err != nil || !c.stays && !apierrors.IsNotFound(err) {
					t.Errorf("%T %s: %v; want it to stay: %v", o, o.GetName(), err, c.stays)
				}
			}
			if c.stays {
				return
			}
			writes := slices.DeleteFunc(requests.requests(), func(r recordedRequest) bool {
				return strings.Contains(r.path, "validatingadmissionpolic") // the guard of the removal writes nothing of ours
			})
			for i, r := range writes {
				isRemoval := r.method == http.MethodDelete && strings.Contains(r.path, "webhookconfigurations")
				if isRemoval != (i < len(all)) {
					t.Errorf("write %d is %s %s; want the webhook configurations to be deleted first, and only they", i, r.method, r.path)
					break
				}
			}
		})
	}
}
