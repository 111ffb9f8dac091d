// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package registry is the image registry of a test cluster. It stands for every registry host there is: containerd asks
// it for ghcr.io/a/b and quay.io/a/b alike and says whom it stands for, so both are pulled under their own names and
// kept apart. What was not pushed here is not found; there is no way out to the real registries.
package registry

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"

	upstream "github.com/google/go-containerregistry/pkg/registry"
)

// Port is where the registry listens on the cluster's network.
const Port = 5000

// Server is the registry. It has two doors: Nodes, where private repositories ask for credentials, and Owner, for the
// program that runs the cluster.
type Server struct {
	images http.Handler

	mu      sync.Mutex
	private map[string]Credentials // by repository, registry host included
}

// Credentials open a private repository.
type Credentials struct {
	Repository string `json:"repository"` // ghcr.io/acme/tuning
	User       string `json:"user"`
	Password   string `json:"password"`
}

// New makes a registry that keeps layers in dir, and everything else in memory.
func New(dir string, to io.Writer) *Server {
	return &Server{
		images:  upstream.New(upstream.WithBlobHandler(upstream.NewDiskBlobHandler(dir)), upstream.Logger(log.New(to, "", log.LstdFlags))),
		private: map[string]Credentials{},
	}
}

// Protect makes a repository private from now on.
func (s *Server) Protect(c Credentials) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.private[Path(c.Repository)] = c
}

// Owner is the door without credentials.
func (s *Server) Owner() http.Handler { return s.images }

// Nodes is the door for containerd: the query parameter ns says which registry host is meant.
func (s *Server) Nodes() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := r.URL.Query().Get("ns"); host != "" && strings.HasPrefix(r.URL.Path, "/v2/") {
			r = r.Clone(r.Context())
			r.URL.Path = "/v2/" + Path(host) + "/" + strings.TrimPrefix(r.URL.Path, "/v2/")
		}
		if c, private := s.guarding(r.URL.Path); private && !c.open(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test cluster"`)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprintf(w, `{"errors":[{"code":"UNAUTHORIZED","message":"repository %s is private"}]}`, c.Repository)
			return
		}
		s.images.ServeHTTP(w, r)
	})
}

// guarding finds the credentials that a request needs.
func (s *Server) guarding(path string) (Credentials, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for repository, c := range s.private {
		if strings.HasPrefix(path, "/v2/"+repository+"/") {
			return c, true
		}
	}
	return Credentials{}, false
}

func (c Credentials) open(r *http.Request) bool {
	user, password, _ := r.BasicAuth()
	return subtle.ConstantTimeCompare([]byte(user+"\x00"+password), []byte(c.User+"\x00"+c.Password)) == 1
}

// Path is how a repository, its registry host included, is called here: a port is not a legal part of a path.
func Path(repository string) string {
	host, rest, found := strings.Cut(repository, "/")
	host = strings.ReplaceAll(host, ":", "_")
	if !found {
		return host
	}
	return host + "/" + rest
}
