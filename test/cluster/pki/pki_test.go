// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func issuePair(t *testing.T, a *Authority, s Subject) (Pair, *x509.Certificate) {
	t.Helper()
	pair, err := a.Issue(s)
	if err != nil {
		t.Fatal(err)
	}
	keyed, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair, keyed.Leaf
}

func TestCertificates(t *testing.T) {
	ours, err := NewAuthority("ours")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := NewAuthority("theirs")
	if err != nil {
		t.Fatal(err)
	}
	_, leaf := issuePair(t, ours, Subject{Name: "system:node:n1", Groups: []string{"system:nodes"}, Hosts: []string{"n1", "10.77.1.1"}})
	if leaf.Subject.CommonName != "system:node:n1" || leaf.Subject.Organization[0] != "system:nodes" {
		t.Errorf("the certificate is for %v", leaf.Subject)
	}
	for _, host := range []string{"n1", "10.77.1.1"} {
		if err := leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if leaf.VerifyHostname("10.77.1.2") == nil {
		t.Error("the certificate is good for another node's address")
	}
	for authority, good := range map[*Authority]bool{ours: true, theirs: false} {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(authority.Certificate)
		for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{use}}); (err == nil) != good {
				t.Errorf("verified for use %v: %v, want good %v", use, err, good)
			}
		}
	}
}

func TestKubeconfig(t *testing.T) {
	a, err := NewAuthority("ours")
	if err != nil {
		t.Fatal(err)
	}
	pair, _ := issuePair(t, a, Subject{Name: "admin"})
	config, err := clientcmd.RESTConfigFromKubeConfig(a.Kubeconfig("skyhook-test-a", "https://127.0.0.1:6443", pair))
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://127.0.0.1:6443" || string(config.CAData) != string(a.Certificate) || string(config.KeyData) != string(pair.Key) {
		t.Errorf("the kubeconfig reads as %v", config)
	}
}
