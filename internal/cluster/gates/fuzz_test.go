// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/test/memory"
)

// FuzzAnswers has a Prometheus server answer anything: it never panics, needs memory in proportion to the answer, and the reason is short.
func FuzzAnswers(f *testing.F) {
	f.Add(200, []byte(`{"status":"success","data":{"resultType":"scalar","result":[0,"1.5"]}}`))
	f.Add(200, []byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"1"},"value":[0,"NaN"]}]}}`))
	f.Add(422, []byte(`{"status":"error","errorType":"bad_data","error":"no"}`))
	f.Add(503, []byte("<html>"))
	var status atomic.Int32
	var answer atomic.Pointer[[]byte]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
		_, _ = w.Write(*answer.Load())
	}))
	f.Cleanup(server.Close)
	most := v1alpha1.Decimal("1")
	p := &v1alpha1.DeploymentPolicy{Spec: v1alpha1.DeploymentPolicySpec{Health: &v1alpha1.HealthGates{
		Prometheus: []v1alpha1.PrometheusGate{{Name: "g", URL: server.URL, Query: "q", AtMost: &most}},
	}}}
	f.Fuzz(func(t *testing.T, code int, body []byte) {
		status.Store(int32(200 + uint(code)%400))
		answer.Store(&body)
		memory.Check(t, 4<<20+256*len(body), func() {
			found := queryAll(context.Background(), p, Endpoints{Allowed: []string{AnyEndpoint}})
			if found.closed != nil && len(found.closed.Text) > maxGateText {
				t.Errorf("the reason has %d bytes", len(found.closed.Text))
			}
		})
	})
}
