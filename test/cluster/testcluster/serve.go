// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

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

// startServers makes registry and API server reachable for nodes and for this machine.
func (k *supervisor) startServers() error {
	registryLog, err := os.Create(k.paths.log("registry"))
	if err != nil {
		return fmt.Errorf("starting the registry: %w", err)
	}
	if err := os.MkdirAll(k.paths.registry(), 0o755); err != nil {
		return fmt.Errorf("starting the registry: %w", err)
	}
	k.registry = registry.New(k.paths.registry(), registryLog)
	nodes, err := k.listenInside(registry.Port)
	if err != nil {
		return fmt.Errorf("starting the registry: %w", err)
	}
	serveInBackground("registry", func() error { return httpServer(k.registry.PullHandler()).Serve(nodes) })
	serveInBackground("registry", func() error { return httpServer(k.registry.PushHandler()).Serve(k.listeners.registry) })
	if err := k.serveAPI(); err != nil {
		return err
	}
	front := fmt.Sprintf("%s:%d", serverIP, apiPort)
	serveInBackground("API server relay", func() error { return forwardConnections(k.listeners.api, k.dialer(front)) })
	return k.writeKubeconfig()
}

// serveAPI starts the relay or proxy at the API server's address, unless the API server itself listens there.
func (k *supervisor) serveAPI() error {
	behind := fmt.Sprintf("%s:%d", k.spec.apiServerIP(), apiPort)
	if k.spec.apiServerIP() == serverIP {
		return nil
	}
	listener, err := k.listenInside(apiPort)
	if err != nil {
		return fmt.Errorf("starting the API server's front: %w", err)
	}
	if !k.spec.APIServerProxy {
		serveInBackground("relay", func() error { return forwardConnections(listener, k.dialer(behind)) })
		return nil
	}
	trust := faults.Trust{Authority: x509.NewCertPool()}
	trust.Authority.AppendCertsFromPEM(k.credentials.authority.Certificate)
	if trust.Serving, err = tls.X509KeyPair(k.credentials.serving.Certificate, k.credentials.serving.Key); err != nil {
		return fmt.Errorf("starting the proxy: %w", err)
	}
	if trust.Vouching, err = tls.X509KeyPair(k.credentials.proxyClient.Certificate, k.credentials.proxyClient.Key); err != nil {
		return fmt.Errorf("starting the proxy: %w", err)
	}
	logFile, err := os.Create(k.paths.log("proxy"))
	if err != nil {
		return fmt.Errorf("starting the proxy: %w", err)
	}
	dial := k.dialer(behind)
	k.proxy = faults.New(behind, trust, func(context.Context, string, string) (net.Conn, error) { return dial() }, log.New(logFile, "", log.LstdFlags))
	serveInBackground("proxy", func() error { return k.proxy.Serve(listener) })
	return nil
}

// apiReady reports whether the API server is ready.
func (k *supervisor) apiReady() bool {
	response, err := k.admin.Get("https://" + k.listeners.api.Addr().String() + "/readyz")
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
func (k *supervisor) writeKubeconfig() error {
	content := k.credentials.authority.Kubeconfig("skyhook-test-"+k.spec.Name, "https://"+k.listeners.api.Addr().String(), k.credentials.admin)
	if err := os.WriteFile(k.paths.kubeconfig(), content, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}

// listenInside opens a port on the cluster's network.
func (k *supervisor) listenInside(port int) (net.Listener, error) {
	var l net.Listener
	err := k.space.Run(func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf("%s:%d", serverIP, port))
		return err
	})
	return l, err
}

// dialer returns a function that connects to an address on the cluster's network.
func (k *supervisor) dialer(address string) func() (net.Conn, error) {
	return func() (net.Conn, error) {
		var c net.Conn
		err := k.space.Run(func() (err error) {
			c, err = net.DialTimeout("tcp", address, 10*time.Second)
			return err
		})
		return c, err
	}
}

// forwardConnections relays connections to another address.
func forwardConnections(l net.Listener, dial func() (net.Conn, error)) error {
	for {
		near, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			far, err := dial()
			if err != nil {
				_ = near.Close() // the client sees a closed connection, as without a relay
				return
			}
			go copyAndClose(far, near)
			copyAndClose(near, far)
		}()
	}
}

// copyAndClose copies one direction, and then closes both: HTTP has no half-open connections.
func copyAndClose(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = errors.Join(to.Close(), from.Close())
}

// serveInBackground runs a server in the background, and logs its error.
func serveInBackground(what string, serve func() error) {
	go func() { fmt.Fprintf(os.Stderr, "%s ended: %v\n", what, serve()) }()
}

func httpServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
}
