// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

const token = "s3cret"

// newSecureServer starts a Prometheus server with a certificate of a private authority, which answers only requests with the
// token, and returns it with the folder of that authority.
func newSecureServer(t *testing.T) (server *httptest.Server, roots string) {
	t.Helper()
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if _, err := w.Write([]byte(`{"status":"success","data":{"resultType":"scalar","result":[0,"1"]}}`)); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	roots = t.TempDir()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(roots, "ca.crt"), authority, 0o600); err != nil {
		t.Fatal(err)
	}
	return server, roots
}

// newAuthority returns a folder with the certificate of an authority that signed nothing.
func newAuthority(t *testing.T) (roots string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "other"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	roots = t.TempDir()
	if err := os.WriteFile(filepath.Join(roots, "ca.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return roots
}

func writeToken(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// queryOnce returns why a gate at this address does not pass; empty when it passes.
func queryOnce(address string, e Endpoints) string {
	most := v1alpha1.Decimal("1")
	p := &v1alpha1.DeploymentPolicy{Spec: v1alpha1.DeploymentPolicySpec{Health: &v1alpha1.HealthGates{
		Prometheus: []v1alpha1.PrometheusGate{{Name: "g", URL: address, Query: "q", AtMost: &most}},
	}}}
	if why := queryAll(context.Background(), p, e).closed; why != nil {
		return why.Text
	}
	return ""
}

// TestSecureServer queries a server behind https as the operator does: in a process of its own, because the certificates of
// SSL_CERT_DIR are read once.
func TestSecureServer(t *testing.T) {
	if address := os.Getenv("TEST_SECURE_SERVER"); address != "" {
		os.Stdout.WriteString("<" + queryOnce(address, Endpoints{Allowed: []string{address}, TokenFile: os.Getenv("TEST_TOKEN_FILE")}) + ">")
		return
	}
	server, roots := newSecureServer(t)
	for _, c := range []struct{ name, roots, token, want string }{
		{"CA and token", roots, writeToken(t, token+"\n"), "<>"},
		{"no CA", t.TempDir(), writeToken(t, token), "no known authority signed its certificate (SSL_CERT_DIR names the folder of a private one)"},
		{"another CA", newAuthority(t), writeToken(t, token), "no known authority signed its certificate"},
		{"no token", roots, "", "it wants a token, and gets none"},
		{"other token", roots, writeToken(t, "other"), "it refuses the token of prometheusTokenFile: client_error: client error: 401"},
		{"missing file", roots, filepath.Join(t.TempDir(), "token"), "reading the file of PROMETHEUS_TOKEN_FILE"},
		{"empty file", roots, writeToken(t, "\n"), "must have one token"},
		{"two tokens", roots, writeToken(t, "a\nb"), "must have one token"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSecureServer$")
		cmd.Env = append(os.Environ(), "SSL_CERT_DIR="+c.roots, "TEST_SECURE_SERVER="+server.URL, "TEST_TOKEN_FILE="+c.token)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) || strings.Contains(string(out), token) {
			t.Errorf("%s: %s, %v; want %s, and no token", c.name, out, err, c.want)
		}
	}
}

// TestReadToken: only servers that the operator's settings name get the token, and only over https.
func TestReadToken(t *testing.T) {
	e := Endpoints{Allowed: []string{"https://metrics.example.com/tenant", "http://10.0.0.1:9090", "https://thanos.monitoring.svc:9091", AnyEndpoint}, TokenFile: writeToken(t, token)}
	for address, want := range map[string]string{
		"https://metrics.example.com/tenant":       token,
		"https://metrics.example.com/tenant/a":     token,
		"https://thanos.monitoring.svc:9091":       token,
		"https://metrics.example.com/other":        "",
		"https://metrics.example.com:8443/tenant":  "",
		"http://metrics.example.com/tenant":        "",
		"http://10.0.0.1:9090":                     "",
		"https://collector.attacker.svc":           "",
		"https://other.example.com":                "",
		"https://metrics.example.com/tenant/../..": "",
	} {
		if got, err := e.readToken(address); got != want || err != nil {
			t.Errorf("%s gets %q, %v; want %q", address, got, err, want)
		}
	}
}
