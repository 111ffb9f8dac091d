// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/skyhook-k8s/skyhook/test/cluster/faults"
	"github.com/skyhook-k8s/skyhook/test/cluster/registry"
)

// serve opens registry and API server to nodes and to this machine.
func (k *keeper) serve() error {
	registryLog, err := os.Create(k.place.log("registry"))
	if err != nil {
		return fmt.Errorf("starting the registry: %w", err)
	}
	if err := os.MkdirAll(k.place.registry(), 0o755); err != nil {
		return fmt.Errorf("starting the registry: %w", err)
	}
	k.registry = registry.New(k.place.registry(), registryLog)
	nodes, err := k.listenInside(registry.Port)
	if err != nil {
		return fmt.Errorf("starting the registry: %w", err)
	}
	forever("registry", func() error { return httpServer(k.registry.Nodes()).Serve(nodes) })
	forever("registry", func() error { return httpServer(k.registry.Owner()).Serve(k.doors.registry) })
	if err := k.front(); err != nil {
		return err
	}
	front := fmt.Sprintf("%s:%d", frontIP, apiPort)
	forever("API server's door", func() error { return relay(k.doors.api, k.dialer(front)) })
	return k.writeKubeconfig()
}

// front is what answers at the API server's address, unless that is the API server itself.
func (k *keeper) front() error {
	behind := fmt.Sprintf("%s:%d", k.spec.server(), apiPort)
	if k.spec.server() == frontIP {
		return nil
	}
	listener, err := k.listenInside(apiPort)
	if err != nil {
		return fmt.Errorf("starting the API server's front: %w", err)
	}
	if !k.spec.APIServerProxy {
		forever("relay", func() error { return relay(listener, k.dialer(behind)) })
		return nil
	}
	trust := faults.Trust{Authority: x509.NewCertPool()}
	trust.Authority.AppendCertsFromPEM(k.credentials.authority.Certificate)
	if trust.Serving, err = tls.X509KeyPair(k.credentials.serving.Certificate, k.credentials.serving.Key); err != nil {
		return fmt.Errorf("starting the proxy: %w", err)
	}
	if trust.Vouching, err = tls.X509KeyPair(k.credentials.vouching.Certificate, k.credentials.vouching.Key); err != nil {
		return fmt.Errorf("starting the proxy: %w", err)
	}
	logFile, err := os.Create(k.place.log("proxy"))
	if err != nil {
		return fmt.Errorf("starting the proxy: %w", err)
	}
	dial := k.dialer(behind)
	k.proxy = faults.New(behind, trust, func(context.Context, string, string) (net.Conn, error) { return dial() }, log.New(logFile, "", log.LstdFlags))
	forever("proxy", func() error { return k.proxy.Serve(listener) })
	return nil
}

// apiReady asks the API server whether it is ready, as the administrator.
func (k *keeper) apiReady() bool {
	response, err := k.admin.Get("https://" + k.doors.api.Addr().String() + "/readyz")
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// adminClient is an HTTP client of the API server with the administrator's certificate.
func (c *credentials) adminClient() (*http.Client, error) {
	certificate, err := tls.X509KeyPair(c.admin.Certificate, c.admin.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's certificate: %w", err)
	}
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(c.authority.Certificate)
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trust, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}}, nil
}

// writeKubeconfig writes the administrator's kubeconfig for use on this machine.
func (k *keeper) writeKubeconfig() error {
	content := k.credentials.authority.Kubeconfig("skyhook-test-"+k.spec.Name, "https://"+k.doors.api.Addr().String(), k.credentials.admin)
	if err := os.WriteFile(k.place.kubeconfig(), content, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}

// listenInside opens a port on the cluster's network.
func (k *keeper) listenInside(port int) (net.Listener, error) {
	var l net.Listener
	err := k.space.Inside(func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf("%s:%d", frontIP, port))
		return err
	})
	return l, err
}

// dialer reaches an address on the cluster's network.
func (k *keeper) dialer(address string) func() (net.Conn, error) {
	return func() (net.Conn, error) {
		var c net.Conn
		err := k.space.Inside(func() (err error) {
			c, err = net.DialTimeout("tcp", address, 10*time.Second)
			return err
		})
		return c, err
	}
}

// relay passes connections on.
func relay(l net.Listener, dial func() (net.Conn, error)) error {
	for {
		near, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			far, err := dial()
			if err != nil {
				_ = near.Close() // the client sees that nobody is there, as without a relay
				return
			}
			go pour(far, near)
			pour(near, far)
		}()
	}
}

// pour copies one direction and, at its end, closes both: HTTP has no use for half a connection.
func pour(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = errors.Join(to.Close(), from.Close())
}

// forever serves in the background. A server that fails is told of in the keeper's log.
func forever(what string, serve func() error) {
	go func() { fmt.Fprintf(os.Stderr, "%s ended: %v\n", what, serve()) }()
}

func httpServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
}
