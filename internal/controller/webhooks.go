// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// removeWebhooks deletes the webhook configurations of an earlier operator. Nothing serves them any more, so they would
// refuse every write of a Skyhook or policy. Their rules are in the CRDs. It retries until it succeeds, unless deleting
// is forbidden.
func removeWebhooks(ctx context.Context, c client.Writer, log logr.Logger) {
	for {
		err := deleteWebhooks(ctx, c, log)
		if err == nil || ctx.Err() != nil {
			return
		}
		log.Error(err, "cannot delete the webhook configurations of an earlier operator")
		if apierrors.IsForbidden(err) || !sleep(ctx, 30*time.Second) {
			return
		}
	}
}

func deleteWebhooks(ctx context.Context, c client.Writer, log logr.Logger) error {
	for _, o := range []client.Object{
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "skyhook-operator-validating-webhook"}},
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "skyhook-operator-mutating-webhook"}},
	} {
		err := c.Delete(ctx, o)
		if err == nil {
			log.Info("deleted webhook configuration of an earlier operator", "webhook", o.GetName())
		} else if !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting %s: %w", o.GetName(), err)
		}
	}
	return nil
}
