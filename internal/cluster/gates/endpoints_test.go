// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// TestResolve lists the addresses that policies may name.
func TestResolve(t *testing.T) {
	e := Endpoints{Allowed: []string{"https://metrics.example.com/tenant", "http://10.0.0.1:9090", "https://me:secret@other.example.com"}, Namespace: "skyhook"}
	for raw, want := range map[string]string{
		"http://prometheus":                              "http://prometheus.skyhook.svc",
		"http://prometheus.monitoring:9090/path":         "http://prometheus.monitoring.svc:9090/path",
		"https://prometheus.monitoring.svc":              "https://prometheus.monitoring.svc",
		"http://prometheus.monitoring.svc.cluster.local": "http://prometheus.monitoring.svc.cluster.local",
		"http://example.com":                             "http://example.com.svc", // at most a Service of the namespace com
		"https://metrics.example.com/tenant":             "https://metrics.example.com/tenant",
		"https://metrics.example.com/tenant/a":           "https://metrics.example.com/tenant/a",
		"https://metrics.example.com/tenants":            "",
		"https://metrics.example.com/tenant/../admin":    "",
		"http://metrics.example.com/tenant":              "",
		"https://metrics.example.com:444/tenant":         "",
		"https://me:secret@metrics.example.com/tenant":   "",
		"https://me:secret@other.example.com":            "https://me:secret@other.example.com",
		"https://me:guessed@other.example.com":           "",
		"https://me@other.example.com":                   "",
		"https://other.example.com/path":                 "https://other.example.com/path",
		"http://10.0.0.1:9090":                           "http://10.0.0.1:9090",
		"http://10.0.0.2:9090":                           "",
		"http://169.254.169.254/latest/meta-data":        "",
		"http://2852039166":                              "",
		"http://0xa9fea9fe":                              "",
		"http://[::1]:9090":                              "",
		"http://localhost:9090":                          "",
		"http://metadata.google.internal":                "",
		"http://a.b.svc.example.com":                     "",
		"file:///etc/passwd":                             "",
	} {
		got, err := e.resolve(raw)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s becomes %q, %v; want %q", raw, got, err, want)
		}
	}
	if got, err := (Endpoints{Allowed: []string{AnyEndpoint}}).resolve("http://10.0.0.2:9090"); got != "http://10.0.0.2:9090" {
		t.Errorf("with %s it becomes %q, %v", AnyEndpoint, got, err)
	}
}

// TestRedirect shows that an allowed server cannot send the operator to another one.
func TestRedirect(t *testing.T) {
	wasAsked := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { wasAsked = true }))
	defer other.Close()
	allowed := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer allowed.Close()
	most := v1alpha1.Decimal("1")
	p := &v1alpha1.DeploymentPolicy{Spec: v1alpha1.DeploymentPolicySpec{Health: &v1alpha1.HealthGates{
		Prometheus: []v1alpha1.PrometheusGate{{Name: "g", URL: allowed.URL, Query: "q", AtMost: &most}},
	}}}
	why := queryAll(context.Background(), p, Endpoints{Allowed: []string{allowed.URL}}).closed
	if why == nil || wasAsked || !strings.Contains(why.Text, "cannot be asked") {
		t.Errorf("the gate says %v; the other server was asked: %v", why, wasAsked)
	}
}
