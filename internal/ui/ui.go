// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package ui serves the pages of "kubectl skyhook ui" on the loopback address of this machine.
//
// The package shows data and finds out nothing: Pages are functions of the plugin that return the structures that its
// commands print. Each address answers with a page for a browser, and with the data behind it as JSON for a client that
// accepts application/json. Pages are rendered here, with one script and one style sheet, and load nothing from elsewhere.
package ui

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/view"
)

//go:embed assets
var assets embed.FS

// Pages are the data behind the pages.
type Pages struct {
	Context func() Context
	Fleet   func(ctx context.Context, rollout string) (*view.Fleet, error) // of one rollout, or of all without a name
	Rollout func(ctx context.Context, name string) (*Rollout, error)
	Node    func(ctx context.Context, name string) (*Node, error)
	Plan    func(ctx context.Context, manifest []byte) (*Plan, error) // of the cluster, and with a manifest if there is one

	Policies func(ctx context.Context) (*view.Policies, error)
	Find     func(ctx context.Context, text string) ([]view.Hit, error)
	Revision func(ctx context.Context, name string, number int64) (string, error) // its packages, and what differs from the spec
	Output   func(ctx context.Context, nodeOp string) (string, error)             // what its command printed on each node
	Change   func(ctx context.Context, c Change) (output string, err error)       // nil for pages that are read-only
}

// Context is what every page shows.
type Context struct {
	Cluster  string    `json:"cluster"`           // its name in the kubeconfig, or the file of a dump
	Taken    time.Time `json:"taken"`             // when the data was read
	Version  int64     `json:"version"`           // increases with each change of the data
	Problem  string    `json:"problem,omitempty"` // why the data is not read again
	Warnings []string  `json:"warnings,omitempty"`
	Rollouts []string  `json:"rollouts"` // their names as commands take them

	Changed <-chan struct{} `json:"-"` // closed with the next version or problem; nil for data that does not change
}

// Server serves the pages.
type Server struct {
	pages    Pages
	token    string        // first part of the path of every page
	once     string        // first part of the path that a browser is opened with; it is valid once
	isOpened atomic.Bool   // that path was requested
	opened   chan struct{} // receives when it is requested again
	host     string        // HOST:PORT that requests must name
	mux      *http.ServeMux
}

// New returns a server of pages at this address of the loopback interface.
func New(address net.Addr, pages Pages) (*Server, error) {
	at, ok := address.(*net.TCPAddr)
	if !ok || !at.IP.IsLoopback() {
		return nil, fmt.Errorf("pages are served on the loopback address only, not on %s", address)
	}
	s := &Server{pages: pages, token: newToken(), once: newToken(), host: at.String(), opened: make(chan struct{}, 1), mux: http.NewServeMux()}
	s.addRoutes()
	return s, nil
}

// newToken returns 128 random bits.
func newToken() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // it never fails
	return hex.EncodeToString(raw[:])
}

// Address is the address of the first page.
func (s *Server) Address() string { return "http://" + s.host + s.base() + "/" }

// OpeningAddress leads to the first page once. Command lines of programs are visible to other users of a machine: this one
// is of no use to them when the browser has used it.
func (s *Server) OpeningAddress() string { return "http://" + s.host + "/open/" + s.once }

// OpenedAgain receives when OpeningAddress is requested after it was used.
func (s *Server) OpenedAgain() <-chan struct{} { return s.opened }

func (s *Server) base() string { return "/" + s.token }

// Serve answers requests until the context ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	go func() {
		<-ctx.Done()
		_ = server.Close() // streams of events have no end of their own
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving pages: %w", err)
	}
	return nil
}
