// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"

	"github.com/skyhook-k8s/skyhook/test/cluster/faults"
	"github.com/skyhook-k8s/skyhook/test/cluster/registry"
)

// Push stores an image, or an index of images, in the cluster's registry under the name that manifests use, such as
// ghcr.io/acme/tuning:1.2.3, and returns its digest.
func (c *Cluster) Push(ctx context.Context, name string, content partial.Describable) (v1.Hash, error) {
	address, err := c.Registry(ctx)
	if err != nil {
		return v1.Hash{}, err
	}
	return registry.Push(ctx, address, name, content)
}

// Registry returns the name, localhost:PORT, that the cluster's registry has for programs of this machine and for nodes alike.
func (c *Cluster) Registry(ctx context.Context) (string, error) {
	if err := c.errNotOurs("pushing an image"); err != nil {
		return "", err
	}
	s, err := c.paths.fetchStatus(ctx)
	return strings.Replace(s.Registry, "127.0.0.1", "localhost", 1), err
}

// PushArchive stores the images of an OCI archive, or of the output of docker save.
func (c *Cluster) PushArchive(ctx context.Context, file, name string) (v1.Hash, error) {
	content, remove, err := registry.Open(file)
	if err != nil {
		return v1.Hash{}, err
	}
	defer remove()
	return c.Push(ctx, name, content)
}

// Protect makes a repository, such as ghcr.io/acme/private, require credentials.
func (c *Cluster) Protect(ctx context.Context, private registry.Credentials) error {
	if err := c.errNotOurs("making a repository private"); err != nil {
		return err
	}
	if private.Repository == "" || private.User == "" || private.Password == "" {
		return errors.New("making a repository private: it needs a repository, a user and a password")
	}
	return c.paths.callSupervisor(ctx, "POST", "/protect", private, nil)
}

// LoadArchive imports the images of an archive into every node that is on, without a registry. Pods use them unless they always
// pull.
func (c *Cluster) LoadArchive(ctx context.Context, file string) error {
	if err := c.errNotOurs("loading an image"); err != nil {
		return err
	}
	content, err := os.ReadFile(file)
	s, down := c.paths.fetchStatus(ctx)
	for _, n := range s.Nodes {
		if err == nil && n.On {
			_, err = c.execInput(ctx, n.Name, bytes.NewReader(content), "/usr/local/bin/ctr", "--namespace=k8s.io", "images", "import", "-")
		}
	}
	if err := errors.Join(down, err); err != nil {
		return fmt.Errorf("loading %s: %w", file, err)
	}
	return nil
}

// SetFaults replaces the faults of the proxy before the API server; without arguments it removes them.
func (c *Cluster) SetFaults(ctx context.Context, wanted ...faults.Fault) error {
	if err := c.errNotOurs("putting faults before the API server"); err != nil {
		return err
	}
	if wanted == nil {
		wanted = []faults.Fault{}
	}
	return c.paths.callSupervisor(ctx, "PUT", "/faults", wanted, nil)
}

// AddFault adds a fault to those before the API server.
func (c *Cluster) AddFault(ctx context.Context, more faults.Fault) error {
	if err := c.errNotOurs("putting faults before the API server"); err != nil {
		return err
	}
	return c.paths.callSupervisor(ctx, "POST", "/faults", more, nil)
}

// Faults lists the faults in force and how often each has happened.
func (c *Cluster) Faults(ctx context.Context) ([]faults.Count, error) {
	if err := c.errNotOurs("listing faults"); err != nil {
		return nil, err
	}
	var counts []faults.Count
	err := c.paths.callSupervisor(ctx, "GET", "/faults", nil, &counts)
	return counts, err
}
