// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// The webhook configurations of the predecessor: up to v0.16 they have fixed names, since v0.18 names of the release and a label.
const (
	webhookLabel      = "nodewright.nvidia.com/webhook-config"
	webhookGroup      = "nodewright.nvidia.com"
	validatingWebhook = "-validating-webhook"
	mutatingWebhook   = "-mutating-webhook"
	formerWebhooks    = "skyhook-operator"
)

// webhookRetry is the time between two attempts to remove webhook configurations.
const webhookRetry = 30 * time.Second

// webhookRemover deletes the webhook configurations of an earlier operator. Nothing serves them any more, so they would refuse
// every write of a Skyhook or policy. Their rules are in the CRDs. The operator has the right to list all, and to delete those
// whose names the chart can know.
type webhookRemover struct {
	client    client.Client
	namespace string // of this operator
	log       logr.Logger
}

// retry removes them until none is left, or the context ends.
func (r *webhookRemover) retry(ctx context.Context) {
	for sleep(ctx, webhookRetry) && !r.removeAll(ctx) {
	}
}

// removeAll deletes them once. It returns whether none is left.
func (r *webhookRemover) removeAll(ctx context.Context) bool {
	found, err := r.list(ctx)
	if err != nil {
		r.log.Error(err, "cannot find the webhook configurations of an earlier operator")
		return false
	}
	ok := true
	for _, o := range found {
		kind := strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.")
		err := client.IgnoreNotFound(r.client.Delete(ctx, o, preconditionOf(o)))
		switch {
		case err == nil:
			r.log.Info("deleted webhook configuration of an earlier operator", "kind", kind, "webhook", o.GetName())
		case apierrors.IsForbidden(err):
			ok = false
			r.log.Error(err, "an earlier operator left a webhook configuration that rejects every write, and this operator must not delete it",
				"remedy", "kubectl delete "+strings.ToLower(kind)+" "+o.GetName())
		case ctx.Err() == nil:
			ok = false
			r.log.Error(err, "cannot delete the webhook configuration of an earlier operator", "kind", kind, "webhook", o.GetName())
		}
	}
	return ok
}

// list lists the webhook configurations of an earlier operator.
func (r *webhookRemover) list(ctx context.Context) ([]client.Object, error) {
	validating, mutating := &admissionv1.ValidatingWebhookConfigurationList{}, &admissionv1.MutatingWebhookConfigurationList{}
	if err := errors.Join(r.client.List(ctx, validating), r.client.List(ctx, mutating)); err != nil {
		return nil, fmt.Errorf("listing webhook configurations: %w", err)
	}
	var out []client.Object
	for i := range validating.Items {
		c := &validating.Items[i]
		var hooks []webhook
		for _, w := range c.Webhooks {
			hooks = append(hooks, webhook{w.ClientConfig.Service, w.Rules})
		}
		if isFormerWebhook(c, validatingWebhook, r.namespace, hooks) {
			out = append(out, c)
		}
	}
	for i := range mutating.Items {
		c := &mutating.Items[i]
		var hooks []webhook
		for _, w := range c.Webhooks {
			hooks = append(hooks, webhook{w.ClientConfig.Service, w.Rules})
		}
		if isFormerWebhook(c, mutatingWebhook, r.namespace, hooks) {
			out = append(out, c)
		}
	}
	return out, nil
}

// webhook is what is read of a webhook of either kind.
type webhook struct {
	service *admissionv1.ServiceReference
	rules   []admissionv1.RuleWithOperations
}

// isFormerWebhook reports whether a configuration belongs to an earlier operator: it is about Skyhooks and nothing else but
// the kinds that the predecessor renamed them to, and it has the predecessor's label, the name that it always had, or a name of
// its form together with a Service of this namespace.
func isFormerWebhook(c client.Object, suffix, namespace string, hooks []webhook) bool {
	isAboutSkyhooks := false
	for _, h := range hooks {
		for _, rule := range h.rules {
			for _, group := range rule.APIGroups {
				if group != v1alpha1.Group && group != webhookGroup {
					return false
				}
				isAboutSkyhooks = isAboutSkyhooks || group == v1alpha1.Group
			}
		}
	}
	_, isLabelled := c.GetLabels()[webhookLabel]
	callsHere := slices.ContainsFunc(hooks, func(h webhook) bool { return h.service != nil && h.service.Namespace == namespace })
	isNamed := c.GetName() == formerWebhooks+suffix || strings.HasSuffix(c.GetName(), suffix) && callsHere
	return isAboutSkyhooks && (isLabelled || isNamed)
}

// preconditionOf has a request change this object and none that was created since with its name.
func preconditionOf(o client.Object) client.Preconditions {
	uid := o.GetUID()
	return client.Preconditions{UID: &uid}
}
