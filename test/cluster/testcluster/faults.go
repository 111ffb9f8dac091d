// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"sync"

	"github.com/skyhook-k8s/skyhook/test/cluster/network"
)

// runningPrograms are the processes of the programs of the control plane.
type runningPrograms struct {
	mu        sync.Mutex
	processes map[string]*os.Process
}

// set records the process of a program, or that it has none.
func (r *runningPrograms) set(name string, process *os.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.processes == nil {
		r.processes = map[string]*os.Process{}
	}
	if delete(r.processes, name); process != nil {
		r.processes[name] = process
	}
}

func (r *runningPrograms) kill(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	process, isRunning := r.processes[name]
	if !isRunning {
		return fmt.Errorf("killing %s: no program of the control plane of that name runs outside of nodes now", name)
	}
	if err := process.Kill(); err != nil {
		return fmt.Errorf("killing %s: %w", name, err)
	}
	return nil
}

// handleFaults adds what breaks something to the control API, faults of the API server's proxy aside.
func (k *supervisor) handleFaults(mux *http.ServeMux) {
	mux.HandleFunc("POST /programs/{name}/kill", jsonHandler(func(r *http.Request) (any, error) {
		return nil, k.running.kill(r.PathValue("name"))
	}))
	mux.HandleFunc("PUT /nodes/{name}/connected", jsonHandler(func(r *http.Request) (any, error) {
		var isConnected bool
		if err := json.NewDecoder(r.Body).Decode(&isConnected); err != nil {
			return nil, err
		}
		m, err := k.findMachine(r.PathValue("name"))
		if err != nil {
			return nil, err
		}
		return nil, network.Connect(r.Context(), k.space, m.node.Index, isConnected)
	}))
	mux.HandleFunc("PUT /hidden", jsonHandler(func(r *http.Request) (any, error) {
		var repositories []string
		if err := json.NewDecoder(r.Body).Decode(&repositories); err != nil {
			return nil, err
		}
		k.registry.Hide(repositories)
		return nil, nil
	}))
	mux.HandleFunc("POST /watches/cut", jsonHandler(func(r *http.Request) (any, error) {
		if k.proxy == nil {
			return nil, errNoProxy
		}
		var text string
		if err := json.NewDecoder(r.Body).Decode(&text); err != nil {
			return nil, err
		}
		user, err := regexp.Compile(text)
		if err != nil {
			return nil, fmt.Errorf("user %q is no regular expression: %w", text, err)
		}
		return k.proxy.CutWatches(user), nil
	}))
}

// KillProgram kills a program of the control plane, such as etcd or kube-apiserver. It starts again a second later.
func (c *Cluster) KillProgram(ctx context.Context, name string) error {
	if err := c.errNotOurs("killing " + name); err != nil {
		return err
	}
	return c.paths.callSupervisor(ctx, "POST", "/programs/"+name+"/kill", nil, nil)
}

// Disconnect cuts the network of a node, and Reconnect ends that. A boot of the node ends it too.
func (c *Cluster) Disconnect(ctx context.Context, name string) error {
	return c.setConnected(ctx, name, false)
}

// Reconnect connects a node again.
func (c *Cluster) Reconnect(ctx context.Context, name string) error {
	return c.setConnected(ctx, name, true)
}

func (c *Cluster) setConnected(ctx context.Context, name string, isConnected bool) error {
	if err := c.errNotOurs("cutting the network of a node"); err != nil {
		return err
	}
	return c.paths.callSupervisor(ctx, "PUT", "/nodes/"+name+"/connected", isConnected, nil)
}

// HideImages makes these repositories vanish from the registry for nodes, and all others be there again.
func (c *Cluster) HideImages(ctx context.Context, repositories ...string) error {
	if err := c.errNotOurs("hiding images"); err != nil {
		return err
	}
	if repositories == nil {
		repositories = []string{}
	}
	return c.paths.callSupervisor(ctx, "PUT", "/hidden", repositories, nil)
}

// CutWatches ends the watches of clients whose user name matches this regular expression, and returns how many there were.
func (c *Cluster) CutWatches(ctx context.Context, user string) (int, error) {
	if err := c.errNotOurs("cutting watches"); err != nil {
		return 0, err
	}
	var n int
	err := c.paths.callSupervisor(ctx, "POST", "/watches/cut", user, &n)
	return n, err
}
