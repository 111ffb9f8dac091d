// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/test/cluster/faults"
	"github.com/skyhook-k8s/skyhook/test/cluster/node"
	"github.com/skyhook-k8s/skyhook/test/cluster/registry"
)

// Status is what the supervisor reports about its cluster.
type Status struct {
	Registry string       `json:"registry"` // where images are pushed, on this machine
	Nodes    []NodeStatus `json:"nodes"`
}

// NodeStatus says whether a node is on.
type NodeStatus struct {
	Name    string `json:"name"`
	On      bool   `json:"on"`
	Leader  int    `json:"leader,omitempty"` // the node's first process, 0 while it has none
	Failure string `json:"failure,omitempty"`
}

// serveControl serves the control API. It starts last, so that a response means that everything else has started.
func (k *supervisor) serveControl() error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", jsonHandler(func(*http.Request) (any, error) { return k.collectStatus(), nil }))
	mux.HandleFunc("POST /nodes/{name}/start", jsonHandler(func(r *http.Request) (any, error) {
		m, err := k.findMachine(r.PathValue("name"))
		if err != nil {
			return nil, err
		}
		return nil, k.startNode(m)
	}))
	mux.HandleFunc("POST /protect", jsonHandler(func(r *http.Request) (any, error) {
		var c registry.Credentials
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			return nil, err
		}
		k.registry.Protect(c)
		return nil, nil
	}))
	mux.HandleFunc("GET /faults", jsonHandler(func(*http.Request) (any, error) {
		if k.proxy == nil {
			return nil, errNoProxy
		}
		return k.proxy.Faults.Counts(), nil
	}))
	mux.HandleFunc("POST /faults", jsonHandler(func(r *http.Request) (any, error) {
		if k.proxy == nil {
			return nil, errNoProxy
		}
		var more faults.Fault
		if err := json.NewDecoder(r.Body).Decode(&more); err != nil {
			return nil, err
		}
		return nil, k.proxy.Faults.Add(more)
	}))
	mux.HandleFunc("PUT /faults", jsonHandler(func(r *http.Request) (any, error) {
		if k.proxy == nil {
			return nil, errNoProxy
		}
		var wanted []faults.Fault
		if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
			return nil, err
		}
		return nil, k.proxy.Faults.Replace(wanted)
	}))
	k.handleFaults(mux)
	mux.HandleFunc("POST /stop", jsonHandler(func(*http.Request) (any, error) {
		time.AfterFunc(50*time.Millisecond, func() { close(k.stop) }) // after the response
		return nil, nil
	}))
	serveInBackground("control", func() error { return httpServer(mux).Serve(k.listeners.control) })
	return nil
}

var errNoProxy = errors.New("faults need a proxy before the API server: bring the cluster up with --apiserver-proxy")

func (k *supervisor) collectStatus() Status {
	s := Status{Registry: k.listeners.registry.Addr().String()}
	for _, m := range k.machines {
		m.mu.Lock()
		n := NodeStatus{Name: m.node.Name, On: m.on, Leader: leaderOf(m.nspawnPID)}
		if m.failure != nil {
			n.Failure = m.failure.Error()
		}
		m.mu.Unlock()
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

// leaderOf translates the first process of a node to the process namespace of the machine.
func leaderOf(carrier int) int {
	if carrier == 0 {
		return 0
	}
	leader, err := node.FindLeader(carrier)
	if err != nil {
		return 0
	}
	outside, err := node.TranslatePID(leader, machineProcesses)
	if err != nil {
		return 0
	}
	return outside
}

// jsonHandler responds with a value as JSON, or with an error.
func jsonHandler(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value, err := f(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(value)
	}
}

// callSupervisor calls the control API of the cluster's supervisor.
func (p clusterPaths) callSupervisor(ctx context.Context, method, path string, question, reply any) error {
	var body bytes.Buffer
	if question != nil {
		if err := json.NewEncoder(&body).Encode(question); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://supervisor"+path, &body)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", p.socket())
	}}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return errNotUp{p.name, err}
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading the response of the supervisor of cluster %s: %w", p.name, err)
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(content)))
	}
	if reply == nil {
		return nil
	}
	return json.Unmarshal(content, reply)
}

// errNotUp means that the cluster has no supervisor.
type errNotUp struct {
	name  string
	cause error
}

func (e errNotUp) Error() string {
	return fmt.Sprintf("cluster %s is not up: bring it up with `up --name %s`", e.name, e.name)
}

func (e errNotUp) Unwrap() error { return e.cause }

func (p clusterPaths) fetchStatus(ctx context.Context) (Status, error) {
	var s Status
	err := p.callSupervisor(ctx, http.MethodGet, "/status", nil, &s)
	return s, err
}
