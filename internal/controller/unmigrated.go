// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// migratedFrom is the annotation of a Skyhook that kubectl skyhook migrate nodewright has moved.
const migratedFrom = v1alpha1.Group + "/migrated-from"

// reasonNotMigrated is the reason of the event about Skyhooks that NodeWright has taken over.
const reasonNotMigrated = "NotMigrated"

// migrationRetry is the time between two looks at Skyhooks that are not migrated.
const migrationRetry = 5 * time.Second

// migrationCheck finds Skyhooks that became NodeWrights and were not migrated back. Since v0.18 NodeWright keeps the records of
// nodes under its own prefix and removes those of the Skyhook, so every finished package would run again.
type migrationCheck struct {
	client    client.Client
	namespace string // of this operator
	events    resourcelock.EventRecorder
	log       logr.Logger
}

// wait returns when every such Skyhook is migrated, or cannot be found. It returns false when the context ends first.
func (c *migrationCheck) wait(ctx context.Context) bool {
	last := ""
	for {
		names, err := c.list(ctx)
		switch {
		case apierrors.IsForbidden(err):
			c.log.Error(err, "cannot find NodeWrights: Skyhooks that they have taken over would run again")
			return true
		case err != nil:
			c.log.Error(err, "cannot find NodeWrights")
		case len(names) == 0:
			return true
		default:
			if more := len(names) - maxNamed; more > 0 {
				names = append(names[:maxNamed], fmt.Sprintf("and %d more", more))
			}
			if list := strings.Join(names, ", "); list != last {
				last = list
				c.report(list)
			}
		}
		if !sleep(ctx, migrationRetry) {
			return false
		}
	}
}

func (c *migrationCheck) report(names string) {
	c.log.Info("waiting: NodeWrights have taken over Skyhooks that are not migrated", "skyhooks", names, "remedy", "kubectl skyhook migrate nodewright --apply, while this operator is stopped")
	c.events.Eventf(newLeaseOf(c.namespace), corev1.EventTypeWarning, reasonNotMigrated,
		"waiting: NodeWrights have taken over these Skyhooks, and finished packages would run again: %s. Stop both operators and run kubectl skyhook migrate nodewright --apply", names)
}

// list lists the names of the Skyhooks.
func (c *migrationCheck) list(ctx context.Context) ([]string, error) {
	nodeWrights := &metav1.PartialObjectMetadataList{}
	nodeWrights.SetGroupVersionKind(schema.GroupVersionKind{Group: webhookGroup, Version: "v1alpha1", Kind: "NodeWrightList"})
	if err := c.client.List(ctx, nodeWrights); err != nil {
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return nil, nil // the cluster does not know the kind
		}
		return nil, fmt.Errorf("listing NodeWrights: %w", err)
	}
	if len(nodeWrights.Items) == 0 {
		return nil, nil
	}
	skyhooks := &metav1.PartialObjectMetadataList{}
	skyhooks.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SkyhookList"))
	if err := c.client.List(ctx, skyhooks); err != nil {
		return nil, fmt.Errorf("listing Skyhooks: %w", err)
	}
	var names []string
	for i := range skyhooks.Items {
		s := &skyhooks.Items[i]
		if slices.ContainsFunc(nodeWrights.Items, func(n metav1.PartialObjectMetadata) bool { return isTakenOver(s, &n) }) {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// isTakenOver reports whether a Skyhook became this NodeWright and was not migrated since. A Skyhook that is younger than the
// NodeWright was created again after the migration.
func isTakenOver(skyhook, nodeWright *metav1.PartialObjectMetadata) bool {
	_, isMigrated := skyhook.Annotations[migratedFrom]
	return skyhook.Name == nodeWright.Name && !isMigrated && !nodeWright.CreationTimestamp.Before(&skyhook.CreationTimestamp)
}
