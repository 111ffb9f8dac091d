// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// gate is a policy with a gate of a Prometheus server, and gated a Skyhook behind it.
const (
	gate = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: gated}
spec:
  default: {budget: {count: 1}, strategy: {fixed: {}}}
  health: {prometheus: [{name: errors, url: %q, query: q, atMost: "1"}]}
`
	gated = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo}
spec:
  deploymentPolicy: gated
  packages: {tool: {version: %s, image: registry.example/tool}}
`
)

// TestSecurePrometheus installs the chart with the values of docs/deployment-policy.md, and the operator asks a server behind https: with a
// wrong token, with the right one, which is read without a restart, and with another authority.
func TestSecurePrometheus(t *testing.T) {
	removeCRDs(t)
	w := testenv.New(t, plane, 1)
	w.StartKubelet()
	ours, theirs := newAuthority(t), newAuthority(t)
	server := ours.serve(t, "s3cret")
	roots, tokens := t.TempDir(), t.TempDir()
	write := func(folder, file, text string) {
		t.Helper()
		w.Must(os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600))
	}
	write(roots, "ca.crt", ours.text)
	write(tokens, "token", "guessed\n")
	values := strings.NewReplacer("/etc/prometheus-ca", roots, "/etc/prometheus-token", tokens, "https://thanos-querier.monitoring.svc:9091", server).Replace(readSecureValues(t))
	file := filepath.Join(t.TempDir(), "values.yaml")
	w.Must(os.WriteFile(file, []byte(values), 0o600))
	mustHelm(t, "v4", w.Namespace, "install", releaseName, "chart", "--values", file, "--set", "cleanup.enabled=false")
	_, end := startOperator(t, w.Namespace)

	waitReason := func(want string) {
		t.Helper()
		w.Eventually("the status says "+want, func() bool {
			text, err := json.Marshal(w.GetSkyhook("demo").Status)
			w.Must(err)
			if strings.Contains(string(text), "s3cret") {
				t.Error("the status has the token")
			}
			return strings.Contains(string(text), want)
		})
	}
	w.Apply(fmt.Sprintf(gate, server))
	w.Apply(fmt.Sprintf(gated, "1.0.0"))
	waitReason("because it refuses the token of prometheusTokenFile")
	write(tokens, "token", "s3cret\n")
	w.WaitComplete("demo")

	end()
	write(roots, "ca.crt", theirs.text)
	_, end = startOperator(t, w.Namespace)
	w.Apply(fmt.Sprintf(gated, "1.1.0"))
	waitReason("because no known authority signed its certificate (SSL_CERT_DIR names the folder of a private one)")
	end()
	write(roots, "ca.crt", ours.text)
	startOperator(t, w.Namespace)
	w.WaitComplete("demo")
}

// readSecureValues returns the values of the chart in docs/deployment-policy.md for a Prometheus server behind https.
func readSecureValues(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "deployment-policy.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```yaml values\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(block[1], "SSL_CERT_DIR") {
			return block[1]
		}
	}
	t.Fatal("docs/deployment-policy.md has no values with SSL_CERT_DIR")
	return ""
}

// authority is a private authority, which signs certificates.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	text        string
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{certificate: &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "private authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	var raw []byte
	a.key, raw = a.sign(t, a.certificate)
	a.text = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	return a
}

// sign signs a certificate for a new key, with the key of the authority if it has one.
func (a authority) sign(t *testing.T, about *x509.Certificate) (key *ecdsa.PrivateKey, raw []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	by := a.key
	if by == nil {
		by = key
	}
	raw, err = x509.CreateCertificate(rand.Reader, about, a.certificate, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	return key, raw
}

// signServer signs the certificate of a server, and returns it and its key as files have them.
func (a authority) signServer(t *testing.T, about *x509.Certificate) (certificate, key []byte) {
	t.Helper()
	about.SerialNumber, about.NotAfter = big.NewInt(2), time.Now().Add(time.Hour)
	about.KeyUsage, about.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	private, raw := a.sign(t, about)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// serve starts a Prometheus server with a certificate of the authority, which answers only requests with a token, and returns its URL.
func (a authority) serve(t *testing.T, token string) string {
	t.Helper()
	pair, err := tls.X509KeyPair(a.signServer(t, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"scalar","result":[0,"1"]}}`)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}
