// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package lab

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

// Status is what a keeper tells about its cluster.
type Status struct {
	Registry string       `json:"registry"` // where images are pushed, on this machine
	Nodes    []NodeStatus `json:"nodes"`
}

// NodeStatus is a node's switch.
type NodeStatus struct {
	Name    string `json:"name"`
	On      bool   `json:"on"`
	Leader  int    `json:"leader,omitempty"` // the node's first process, 0 while it has none
	Failure string `json:"failure,omitempty"`
}

// control answers whoever wants something of the cluster. It comes last: who gets an answer knows that all is there.
func (k *keeper) control() error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", answer(func(*http.Request) (any, error) { return k.status(), nil }))
	mux.HandleFunc("POST /nodes/{name}/start", answer(func(r *http.Request) (any, error) {
		m, err := k.machine(r.PathValue("name"))
		if err != nil {
			return nil, err
		}
		return nil, k.start(m)
	}))
	mux.HandleFunc("POST /protect", answer(func(r *http.Request) (any, error) {
		var c registry.Credentials
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			return nil, err
		}
		k.registry.Protect(c)
		return nil, nil
	}))
	mux.HandleFunc("GET /faults", answer(func(*http.Request) (any, error) {
		if k.proxy == nil {
			return nil, errNoProxy
		}
		return k.proxy.Faults.Counts(), nil
	}))
	mux.HandleFunc("POST /faults", answer(func(r *http.Request) (any, error) {
		if k.proxy == nil {
			return nil, errNoProxy
		}
		var more faults.Fault
		if err := json.NewDecoder(r.Body).Decode(&more); err != nil {
			return nil, err
		}
		return nil, k.proxy.Faults.Add(more)
	}))
	mux.HandleFunc("PUT /faults", answer(func(r *http.Request) (any, error) {
		if k.proxy == nil {
			return nil, errNoProxy
		}
		var wanted []faults.Fault
		if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
			return nil, err
		}
		return nil, k.proxy.Faults.Replace(wanted)
	}))
	mux.HandleFunc("POST /stop", answer(func(*http.Request) (any, error) {
		time.AfterFunc(50*time.Millisecond, func() { close(k.stop) }) // after the answer
		return nil, nil
	}))
	forever("control", func() error { return httpServer(mux).Serve(k.doors.control) })
	return nil
}

var errNoProxy = errors.New("faults need a proxy before the API server: bring the cluster up with --apiserver-proxy")

func (k *keeper) status() Status {
	s := Status{Registry: k.doors.registry.Addr().String()}
	for _, m := range k.machines {
		m.mu.Lock()
		n := NodeStatus{Name: m.node.Name, On: m.on, Leader: leaderOf(m.carrier)}
		if m.failure != nil {
			n.Failure = m.failure.Error()
		}
		m.mu.Unlock()
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

// leaderOf numbers a node's first process as the machine does.
func leaderOf(carrier int) int {
	if carrier == 0 {
		return 0
	}
	leader, err := node.Leader(carrier)
	if err != nil {
		return 0
	}
	outside, err := node.Outside(leader, machineProcesses)
	if err != nil {
		return 0
	}
	return outside
}

// answer makes an HTTP answer of a value or an error.
func answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value, err := f(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(value)
	}
}

// ask wants something of the keeper of the cluster at p.
func (p place) ask(ctx context.Context, method, path string, question, reply any) error {
	var body bytes.Buffer
	if question != nil {
		if err := json.NewEncoder(&body).Encode(question); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://keeper"+path, &body)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", p.socket())
	}}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return errDown{p.name, err}
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("hearing the keeper of cluster %s: %w", p.name, err)
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(content)))
	}
	if reply == nil {
		return nil
	}
	return json.Unmarshal(content, reply)
}

// errDown says that nobody keeps the cluster.
type errDown struct {
	name  string
	cause error
}

func (e errDown) Error() string {
	return fmt.Sprintf("cluster %s is not up: bring it up with `up --name %s`", e.name, e.name)
}

func (e errDown) Unwrap() error { return e.cause }

func (p place) status(ctx context.Context) (Status, error) {
	var s Status
	err := p.ask(ctx, http.MethodGet, "/status", nil, &s)
	return s, err
}
