// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/migrate"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// migration is one run: what is there, and what changes.
type migration struct {
	*migrateOptions
	client    client.Client
	direction migrate.Direction

	operators  []appsv1.Deployment // of both sides, stopped
	jobs       []migrate.Job
	jobObjects map[string]*batchv1.Job // by namespace/name
	originals  []*unstructured.Unstructured
	targets    map[string]*unstructured.Unstructured // by kind/name
	webhooks   []client.Object
	configMaps []*corev1.ConfigMap // that change their owner
	nodes      []*node.Node

	moves  []*objectMove
	rules  migrate.NodeRules
	edited []*node.Node // that change
	edits  map[string]node.Edit
	record []migrate.Job // that a node records now
	gaps   []migrate.Gap
}

// read reads everything that the plan depends on.
func (m *migration) read(ctx context.Context) error {
	m.targets = map[string]*unstructured.Unstructured{}
	for _, kind := range []schema.GroupVersionKind{m.direction.From.PolicyGVK(), m.direction.From.GVK()} {
		found, err := m.listObjects(ctx, kind)
		if err != nil {
			return err
		}
		m.originals = append(m.originals, found...)
	}
	for _, kind := range []schema.GroupVersionKind{m.direction.To.PolicyGVK(), m.direction.To.GVK()} {
		found, err := m.listObjects(ctx, kind)
		if err != nil {
			return err
		}
		for _, o := range found {
			m.targets[kindAndName(o)] = o
		}
	}
	if err := m.readWebhooks(ctx); err != nil {
		return err
	}
	if err := m.readConfigMaps(ctx); err != nil {
		return err
	}
	nodes, err := session.ListNodes(ctx, m.Factory, m.client)
	m.nodes = nodes
	return err
}

// listObjects lists the objects of a kind by name; none when the server does not know the kind.
func (m *migration) listObjects(ctx context.Context, kind schema.GroupVersionKind) ([]*unstructured.Unstructured, error) {
	m.Note("listing %s.%s", kind.Kind, kind.Group)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := m.client.List(ctx, list); err != nil {
		if session.IsUnknownKind(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("listing %s: %w", kind.GroupKind(), err)
	}
	out := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out, nil
}

// readWebhooks finds the webhook configurations for objects of either side: with their operator stopped they refuse writes.
func (m *migration) readWebhooks(ctx context.Context) error {
	m.Note("listing the webhook configurations")
	validating, mutating := &admissionv1.ValidatingWebhookConfigurationList{}, &admissionv1.MutatingWebhookConfigurationList{}
	if err := m.client.List(ctx, validating); err != nil {
		return fmt.Errorf("listing validating webhook configurations: %w", err)
	}
	if err := m.client.List(ctx, mutating); err != nil {
		return fmt.Errorf("listing mutating webhook configurations: %w", err)
	}
	for i := range validating.Items {
		for _, w := range validating.Items[i].Webhooks {
			m.addWebhook(&validating.Items[i], w.Rules)
		}
	}
	for i := range mutating.Items {
		for _, w := range mutating.Items[i].Webhooks {
			m.addWebhook(&mutating.Items[i], w.Rules)
		}
	}
	return nil
}

func (m *migration) addWebhook(config client.Object, rules []admissionv1.RuleWithOperations) {
	for _, r := range rules {
		isOfASide := slices.Contains(r.APIGroups, migrate.NodeWright.Group) || slices.Contains(r.APIGroups, migrate.Skyhook.Group)
		if isOfASide && len(r.APIGroups) == 1 && !slices.Contains(m.webhooks, config) {
			m.webhooks = append(m.webhooks, config)
		}
	}
}

// readConfigMaps finds the ConfigMaps of packages and nodes that the originals own.
func (m *migration) readConfigMaps(ctx context.Context) error {
	label := m.direction.From.Key("name")
	m.Note("listing the ConfigMaps with the label %s", label)
	list := &corev1.ConfigMapList{}
	if err := m.client.List(ctx, list, client.HasLabels{label}); err != nil {
		return fmt.Errorf("listing ConfigMaps: %w", err)
	}
	for i := range list.Items {
		owner := metav1.GetControllerOf(&list.Items[i])
		if owner != nil && owner.Kind == m.direction.From.Kind && strings.HasPrefix(owner.APIVersion, m.direction.From.Group+"/") {
			m.configMaps = append(m.configMaps, &list.Items[i])
		}
	}
	return nil
}

func kindAndName(o *unstructured.Unstructured) string { return o.GetKind() + "/" + o.GetName() }

// planNodes computes the edits of all nodes.
func (m *migration) planNodes() error {
	m.rules.Direction, m.rules.Now = m.direction, time.Now()
	m.rules.Objects, m.rules.Jobs = map[string]migrate.ObjectRule{}, map[string][]migrate.Job{}
	for _, move := range m.moves {
		if move.isPolicy() || move.action == actionSkip {
			continue
		}
		rule, err := migrate.NewObjectRule(move.original, m.back || migrate.CountsAlone(move.original))
		if err != nil {
			return fmt.Errorf("%s: %w", kindAndName(move.original), err)
		}
		m.rules.Objects[move.original.GetName()] = rule
	}
	if len(m.rules.Objects) == 0 {
		return nil
	}
	for _, j := range m.jobs {
		if _, moves := m.rules.Objects[j.Object]; moves && j.Phase == migrate.JobSucceeded {
			m.record = append(m.record, j)
			m.rules.Jobs[j.Node] = append(m.rules.Jobs[j.Node], j)
		}
	}
	m.edits = map[string]node.Edit{}
	for _, n := range m.nodes {
		edit, err := m.rules.Edit(n)
		if err != nil {
			return err
		}
		if !edit.Empty() {
			m.edited = append(m.edited, n)
			m.edits[n.Name] = edit
		}
	}
	return nil
}
