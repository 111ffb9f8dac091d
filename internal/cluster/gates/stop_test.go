// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// answering starts a Prometheus server with one answer; a status other than 200 is an error of the server.
func answering(t *testing.T, status int, answer string) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"status":"success","data":%s}`, answer)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func textOf(why *rollout.Why) string {
	if why == nil {
		return ""
	}
	return why.Text
}

// TestStoppingQueries: only a result outside the threshold stops a rollout. What is no answer closes it until there is one.
func TestStoppingQueries(t *testing.T) {
	most := v1alpha1.Decimal("1")
	for name, c := range map[string]struct {
		status         int
		answer         string
		closed, failed string
	}{
		"within":         {200, `{"resultType":"scalar","result":[0,"1"]}`, "", ""},
		"outside":        {200, `{"resultType":"scalar","result":[0,"2"]}`, "", "gate g: the query gives 2, and must give at most 1"},
		"infinite":       {200, `{"resultType":"scalar","result":[0,"+Inf"]}`, "", "gate g: the query gives +Inf, and must give at most 1"},
		"no number":      {200, `{"resultType":"scalar","result":[0,"NaN"]}`, "gate g: the query gives NaN, and must give at most 1", ""},
		"no result":      {200, `{"resultType":"vector","result":[]}`, "gate g: the query gives no result", ""},
		"other type":     {200, `{"resultType":"matrix","result":[]}`, "gate g: the query gives a matrix, and must give numbers", ""},
		"no number, too": {200, `{"resultType":"vector","result":[{"metric":{},"value":[0,"NaN"]},{"metric":{"a":"2"},"value":[0,"3"]}]}`, "", `gate g: the query gives 3 for {a="2"}, and must give at most 1`},
	} {
		p := &v1alpha1.DeploymentPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful"}, Spec: v1alpha1.DeploymentPolicySpec{Health: &v1alpha1.HealthGates{
			Prometheus: []v1alpha1.PrometheusGate{{Name: "g", URL: answering(t, c.status, c.answer), Query: "q", AtMost: &most, OnFailure: v1alpha1.GateStop}},
		}}}
		found := queryAll(context.Background(), p, Endpoints{Allowed: []string{AnyEndpoint}})
		if textOf(found.closed) != c.closed || textOf(found.failed) != c.failed {
			t.Errorf("%s: closed %q, failed %q", name, textOf(found.closed), textOf(found.failed))
		}
	}
}

// TestStoppingServers: a server with an error, one that is too slow and one that does not exist stop nothing.
func TestStoppingServers(t *testing.T) {
	most := v1alpha1.Decimal("1")
	end := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(end) })
	for _, url := range []string{answering(t, http.StatusBadGateway, "{}"), slow.URL, "http://127.0.0.1:1"} {
		p := &v1alpha1.DeploymentPolicy{Spec: v1alpha1.DeploymentPolicySpec{Health: &v1alpha1.HealthGates{
			Prometheus: []v1alpha1.PrometheusGate{{Name: "g", URL: url, Query: "q", AtMost: &most, OnFailure: v1alpha1.GateStop}},
		}}}
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		found := queryAll(ctx, p, Endpoints{Allowed: []string{AnyEndpoint}})
		cancel()
		if found.failed != nil || found.closed == nil {
			t.Errorf("%s: %+v", url, found)
		}
	}
}
