// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// TestGuardedMetrics reads metrics as somebody without a token, as a ServiceAccount without a right, and as the one that
// the chart binds, from an operator with the chart's rights. The readers verify the certificate of the Secret, as the ServiceMonitor says.
func TestGuardedMetrics(t *testing.T) {
	removeCRDs(t)
	w := testenv.New(t, plane, 1)
	address := findFreeAddress(t)
	ours, theirs := newAuthority(t), newAuthority(t)
	name := "skyhook-operator-controller-manager-metrics-service." + w.Namespace + ".svc"
	certificate, key := ours.signServer(t, &x509.Certificate{DNSNames: []string{name}})
	if _, err := newClientset(t).CoreV1().Secrets(w.Namespace).Create(context.Background(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics-tls"}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": []byte(ours.text)},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if out, err := helm(t, "v4", w.Namespace, "install", releaseName, "chart", "--set-string", strings.Join([]string{
		"controllerManager.manager.env.metricsPort=" + address, "controllerManager.manager.env.metricsSecure=true", "controllerManager.manager.env.probePort=0",
		"metrics.tlsSecret=metrics-tls", "metrics.serviceAccountName=reader", "metrics.serviceAccountNamespace=" + w.Namespace,
	}, ","), "--set", "metrics.addServiceAccountBinding=true"); err != nil {
		t.Fatal(out, err)
	}
	t.Cleanup(func() {
		if out, err := helm(t, "v4", w.Namespace, "uninstall", releaseName, "--no-hooks"); err != nil {
			t.Error(out, err)
		}
	})
	startOperator(t, w.Namespace)
	reader, other := createToken(t, w.Namespace, "reader"), createToken(t, w.Namespace, "other")
	var last string
	defer func() {
		if t.Failed() {
			t.Log("last answer:", last)
		}
	}()
	w.Eventually("the one who is bound reads metrics", func() bool {
		status, text := fetch(t, "https://"+address+"/metrics", reader, name, ours)
		last = fmt.Sprint(status, text[:min(len(text), 300)])
		return status == http.StatusOK && strings.Contains(text, "\nskyhook_leading 1\n")
	})
	for who, c := range map[string]struct {
		token string
		want  int
	}{"nobody": {"", http.StatusUnauthorized}, "a forger": {"x.y.z", http.StatusInternalServerError}, "another ServiceAccount": {other, http.StatusForbidden}} {
		if status, text := fetch(t, "https://"+address+"/metrics", c.token, name, ours); status != c.want || strings.Contains(text, "skyhook_") {
			t.Errorf("%s gets %d: %s", who, status, text)
		}
	}
	if status, _ := fetch(t, "http://"+address+"/metrics", reader, name, ours); status == http.StatusOK {
		t.Error("metrics are served over plain HTTP too")
	}
	if status, text := fetch(t, "https://"+address+"/metrics", reader, name, theirs); status != 0 || !strings.Contains(text, "unknown authority") {
		t.Errorf("a reader that trusts another authority gets %d: %s", status, text)
	}
}

// findFreeAddress returns an unused address of this machine.
func findFreeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// createToken creates a ServiceAccount and a token for it.
func createToken(t *testing.T, namespace, name string) string {
	t.Helper()
	accounts := newClientset(t).CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(context.Background(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made, err := accounts.CreateToken(context.Background(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.Status.Token
}

// fetch requests a page of a server that has this name by the authority; the status is 0 without a response.
func fetch(t *testing.T, url, token, name string, by authority) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(by.text))
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12}}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(body)
}
