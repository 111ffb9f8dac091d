// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// TestQueryAll lists answers of a Prometheus server that do and do not pass.
func TestQueryAll(t *testing.T) {
	for _, c := range []struct{ answer, least, most, want string }{
		{`{"resultType":"scalar","result":[0,"1.5"]}`, "", "1.5", ""},
		{`{"resultType":"scalar","result":[0,"1.6"]}`, "", "1.5", "gate g: the query gives 1.6, and must give at most 1.5"},
		{`{"resultType":"scalar","result":[0,"-2"]}`, "-1.5", "", "gate g: the query gives -2, and must give at least -1.5"},
		{`{"resultType":"scalar","result":[0,"NaN"]}`, "0", "", "gate g: the query gives NaN, and must give at least 0"},
		{`{"resultType":"vector","result":[]}`, "", "1", "gate g: the query gives no result"},
		{`{"resultType":"vector","result":[{"metric":{"a":"1"},"value":[0,"0"]},{"metric":{"a":"2"},"value":[0,"3"]}]}`, "", "1", `gate g: the query gives 3 for {a="2"}, and must give at most 1`},
		{`{"resultType":"matrix","result":[]}`, "", "1", "gate g: the query gives a matrix, and must give numbers"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"status":"success","data":%s}`, c.answer)
		}))
		g := v1alpha1.PrometheusGate{Name: "g", URL: server.URL, Query: "q"}
		if least := v1alpha1.Decimal(c.least); least != "" {
			g.AtLeast = &least
		}
		if most := v1alpha1.Decimal(c.most); most != "" {
			g.AtMost = &most
		}
		p := &v1alpha1.DeploymentPolicy{Spec: v1alpha1.DeploymentPolicySpec{Health: &v1alpha1.HealthGates{Prometheus: []v1alpha1.PrometheusGate{g}}}}
		got := ""
		if why := queryAll(context.Background(), p, Endpoints{Allowed: []string{AnyEndpoint}}).closed; why != nil {
			got = why.Text
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.answer, got, c.want)
		}
		server.Close()
		if why := queryAll(context.Background(), p, Endpoints{Allowed: []string{AnyEndpoint}}).closed; why == nil || !strings.Contains(why.Text, "cannot be asked") {
			t.Errorf("a server that does not answer: %v", why)
		}
	}
}
