// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package pki makes the keys, certificates and kubeconfigs of one test cluster. They are made anew for every cluster
// and are worth nothing outside of it.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority is a certificate authority.
type Authority struct {
	Certificate []byte // PEM
	parsed      *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Pair is a certificate and its key, both PEM.
type Pair struct{ Certificate, Key []byte }

// Subject is the subject of a certificate: Name is the Kubernetes user, Groups are its groups, Hosts are the names and addresses of
// a server.
type Subject struct {
	Name   string
	Groups []string
	Hosts  []string
}

// lifetime is longer than any test cluster lives.
const lifetime = 365 * 24 * time.Hour

// NewAuthority creates a certificate authority.
func NewAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the authority %s: %w", name, err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the authority %s: %w", name, err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making the authority %s: %w", name, err)
	}
	return &Authority{Certificate: pemBlock("CERTIFICATE", der), parsed: parsed, key: key}, nil
}

// Issue issues a certificate for a client and, with Hosts, a server.
func (a *Authority) Issue(s Subject) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("making a key for %s: %w", s.Name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return Pair{}, fmt.Errorf("making a serial number for %s: %w", s.Name, err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: s.Name, Organization: s.Groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, host := range s.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.parsed, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("signing the certificate of %s: %w", s.Name, err)
	}
	return encodePair(der, key)
}

// SigningKey creates the key pair that signs service account tokens, with the public key in place of the certificate.
func SigningKey() (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("making the key of service accounts: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return Pair{}, fmt.Errorf("making the key of service accounts: %w", err)
	}
	private, err := encodeKey(key)
	return Pair{Certificate: pemBlock("PUBLIC KEY", public), Key: private}, err
}

// Key returns the authority's own key, for the controller that signs certificate requests.
func (a *Authority) Key() ([]byte, error) { return encodeKey(a.key) }

// Write puts the pair into dir as NAME.crt and NAME.key.
func (p Pair) Write(dir, name string) error {
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), p.Certificate, 0o644); err != nil {
		return fmt.Errorf("writing the certificate of %s: %w", name, err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".key"), p.Key, 0o600); err != nil {
		return fmt.Errorf("writing the key of %s: %w", name, err)
	}
	return nil
}

// Kubeconfig renders a kubeconfig for the API server at server and the user of p.
func (a *Authority) Kubeconfig(cluster, server string, p Pair) []byte {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
  - name: %[1]s
    cluster: {server: %[2]q, certificate-authority-data: %[3]s}
users:
  - name: %[1]s
    user: {client-certificate-data: %[4]s, client-key-data: %[5]s}
contexts:
  - name: %[1]s
    context: {cluster: %[1]s, user: %[1]s}
current-context: %[1]s
`, cluster, server, b64(a.Certificate), b64(p.Certificate), b64(p.Key))
}

func encodePair(der []byte, key *ecdsa.PrivateKey) (Pair, error) {
	private, err := encodeKey(key)
	return Pair{Certificate: pemBlock("CERTIFICATE", der), Key: private}, err
}

func encodeKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("writing a key: %w", err)
	}
	return pemBlock("PRIVATE KEY", der), nil
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
