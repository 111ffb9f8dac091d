// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/policy"
)

// policyRetry is the time between two attempts to create the default policy.
const policyRetry = 30 * time.Second

// policyCreator creates the default DeploymentPolicy if it does not exist. It never changes one. A chart cannot create it, because Helm
// looks up the kinds of all objects before it creates the CRDs.
type policyCreator struct {
	client     client.Client
	name, spec string // spec is JSON; without one of them nothing is created
	log        logr.Logger
}

// retry creates the policy, until it exists or the context ends.
func (c *policyCreator) retry(ctx context.Context) {
	for sleep(ctx, policyRetry) && !c.create(ctx) {
	}
}

// create creates the policy once. It returns whether nothing is left to do.
func (c *policyCreator) create(ctx context.Context) bool {
	if c.name == "" || c.spec == "" {
		return true
	}
	p := &unstructured.Unstructured{Object: map[string]any{}}
	var spec map[string]any
	if err := json.Unmarshal([]byte(c.spec), &spec); err != nil {
		c.log.Error(err, "cannot read the spec of the default DeploymentPolicy", "policy", c.name)
		return true
	}
	p.SetAPIVersion(v1alpha1.GroupVersion.String())
	p.SetKind(policy.Kind)
	p.SetName(c.name)
	p.Object["spec"] = spec
	err := c.client.Create(ctx, p)
	switch {
	case err == nil:
		c.log.Info("created the default DeploymentPolicy", "policy", c.name)
	case apierrors.IsAlreadyExists(err):
	case ctx.Err() == nil:
		c.log.Error(err, "cannot create the default DeploymentPolicy", "policy", c.name)
		return false
	}
	return true
}
