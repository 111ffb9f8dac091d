// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package registry is the image registry of a test cluster. It stands for every registry host there is: containerd asks
// it for ghcr.io/a/b and quay.io/a/b alike and says whom it stands for, so both are pulled under their own names and
// kept apart; localhost:PORT/a is what other programs push here as a. What was not pushed here is not found; there is no
// way out to the real registries.
package registry

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"sync"

	upstream "github.com/google/go-containerregistry/pkg/registry"
)

// Port is where the registry listens on the cluster's network.
const Port = 5000

// Server is the registry. It has two handlers: PullHandler for nodes, where private repositories require credentials, and
// PushHandler for the program that runs the cluster.
type Server struct {
	images http.Handler

	mu      sync.Mutex
	private map[string]Credentials // by repository, registry host included
	hidden  []string               // repositories that answer as if they did not exist
}

// Credentials are the credentials of a private repository.
type Credentials struct {
	Repository string `json:"repository"` // ghcr.io/acme/tuning
	User       string `json:"user"`
	Password   string `json:"password"`
}

// New creates a registry that stores layers in dir, and everything else in memory.
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
	s.private[RepositoryPath(c.Repository)] = c
}

// Hide makes these repositories look to nodes as if they did not exist, and all others be there again.
func (s *Server) Hide(repositories []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hidden = nil
	for _, repository := range repositories {
		s.hidden = append(s.hidden, RepositoryPath(repository))
	}
}

func (s *Server) isHidden(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.hidden, func(repository string) bool { return strings.HasPrefix(path, "/v2/"+repository+"/") })
}

// PushHandler serves without credentials.
func (s *Server) PushHandler() http.Handler { return s.images }

// PullHandler serves containerd, whose query parameter ns names the registry host.
func (s *Server) PullHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := r.URL.Query().Get("ns"); host != "" && strings.HasPrefix(r.URL.Path, "/v2/") {
			r = r.Clone(r.Context())
			r.URL.Path = "/v2/" + RepositoryPath(host+"/"+strings.TrimPrefix(r.URL.Path, "/v2/"))
		}
		if s.isHidden(r.URL.Path) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprint(w, `{"errors":[{"code":"NAME_UNKNOWN","message":"the repository is hidden"}]}`)
			return
		}
		if c, private := s.requiredCredentials(r.URL.Path); private && !c.match(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test cluster"`)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprintf(w, `{"errors":[{"code":"UNAUTHORIZED","message":"repository %s is private"}]}`, c.Repository)
			return
		}
		s.images.ServeHTTP(w, r)
	})
}

// requiredCredentials returns the credentials that a request needs.
func (s *Server) requiredCredentials(path string) (Credentials, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for repository, c := range s.private {
		if strings.HasPrefix(path, "/v2/"+repository+"/") {
			return c, true
		}
	}
	return Credentials{}, false
}

func (c Credentials) match(r *http.Request) bool {
	user, password, _ := r.BasicAuth()
	return subtle.ConstantTimeCompare([]byte(user+"\x00"+password), []byte(c.User+"\x00"+c.Password)) == 1
}

// RepositoryPath is the path of a repository in this registry. It includes the registry host, without the colon of a port, unless that is us.
func RepositoryPath(repository string) string {
	host, rest, _ := strings.Cut(repository, "/")
	if strings.HasPrefix(host, "localhost:") {
		return rest
	}
	return strings.ReplaceAll(host, ":", "_") + "/" + rest
}
