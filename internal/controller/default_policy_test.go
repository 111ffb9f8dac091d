// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// TestDefaultPolicyIsCreated shows that the default policy is created once, that one which exists stays as it is, and that a spec
// which the API server refuses is reported and tried again.
func TestDefaultPolicyIsCreated(t *testing.T) {
	s := testenv.New(t, plane, 0)
	var log bytes.Buffer
	creator := func(name, spec string) *policyCreator {
		return &policyCreator{client: s.Client, name: name, spec: spec, log: funcr.New(func(_, args string) { log.WriteString(args + "\n") }, funcr.Options{})}
	}
	const spec = `{"default":{"budget":{"percent":10},"strategy":{"fixed":{"initialBatch":5,"failureThreshold":1}}}}`
	percent := func() int32 {
		p := &v1alpha1.DeploymentPolicy{}
		s.Must(s.Client.Get(context.Background(), client.ObjectKey{Name: "careful"}, p))
		return *p.Spec.Default.Budget.Percent
	}
	t.Cleanup(func() {
		s.Must(client.IgnoreNotFound(s.Client.Delete(context.Background(), &v1alpha1.DeploymentPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful"}})))
	})
	if !creator("careful", spec).create(context.Background()) || percent() != 10 {
		t.Errorf("it was not created: %s", &log)
	}
	if !creator("careful", strings.Replace(spec, "10", "50", 1)).create(context.Background()) || percent() != 10 {
		t.Errorf("it was changed to %d percent: %s", percent(), &log)
	}
	for _, c := range []*policyCreator{creator("", spec), creator("other", "")} {
		if !c.create(context.Background()) {
			t.Errorf("%q with the spec %q is tried again", c.name, c.spec)
		}
	}
	log.Reset()
	wrong := creator("wrong", `{"default":{"budget":{},"strategy":{"fixed":{}}}}`)
	if wrong.create(context.Background()) || !strings.Contains(log.String(), "budget needs exactly one of percent and count") {
		t.Errorf("a spec that is refused is not reported: %s", &log)
	}
}
