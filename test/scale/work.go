// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// objectName is the name of the Skyhook, the DeploymentPolicy and the NodeOp.
const objectName = "scale"

// firstVersion is the patch version of every package at its installation.
const firstVersion = 3

// Keys of the packages' configMap. A change of the second one requires a reboot.
const (
	keyConfig = "config.sh"
	keyReboot = "reboot.conf"
)

// install creates the Skyhook for all nodes.
func (f *simulation) install(ctx context.Context) error {
	s := &v1alpha1.Skyhook{ObjectMeta: metav1.ObjectMeta{Name: objectName}}
	s.Spec.NodeSelectors.MatchLabels = map[string]v1alpha1.LabelValue{"pool": "gpu"}
	s.Spec.Priority = 100
	if f.budget > 0 {
		s.Spec.InterruptionBudget.Count = new(int64(f.budget))
	}
	s.Spec.Packages = map[string]v1alpha1.Package{}
	for j := range f.packages {
		s.Spec.Packages[fmt.Sprintf("package-%c", 'a'+j)] = v1alpha1.Package{
			Version: versionOf(firstVersion), Image: "registry.example/skyhook/packages/package",
			ConfigMap:        map[string]v1alpha1.ConfigData{"apply.sh": "echo apply", keyConfig: "echo config", keyReboot: "1"},
			ConfigInterrupts: map[string]v1alpha1.Interrupt{keyReboot: {Type: v1alpha1.InterruptReboot}},
			Uninstall:        &v1alpha1.Uninstall{Enabled: true},
		}
	}
	if err := f.client.Create(ctx, s); err != nil {
		return fmt.Errorf("creating the Skyhook: %w", err)
	}
	return nil
}

// completeState is what a node records when every package is complete there. The operator takes it over without running a stage.
func (f *simulation) completeState() string {
	state := v1alpha1.NodeState{}
	for j := range f.packages {
		name, version := fmt.Sprintf("package-%c", 'a'+j), string(versionOf(firstVersion))
		state[name+"|"+version] = v1alpha1.PackageStatus{
			Name: name, Version: version, Image: "registry.example/skyhook/packages/package", Stage: v1alpha1.StageConfig, State: v1alpha1.StateComplete,
		}
	}
	return node.EncodeJSON(state)
}

// versionOf returns the version of a package by its patch version.
func versionOf(patch int) v1alpha1.PackageVersion {
	return v1alpha1.PackageVersion(fmt.Sprintf("1.2.%d", patch))
}

// editSkyhook changes the spec of the Skyhook.
func (f *simulation) editSkyhook(ctx context.Context, change func(*v1alpha1.SkyhookSpec)) error {
	s := &v1alpha1.Skyhook{}
	if err := f.client.Get(ctx, client.ObjectKey{Name: objectName}, s); err != nil {
		return fmt.Errorf("reading the Skyhook: %w", err)
	}
	before := s.DeepCopy()
	change(&s.Spec)
	if err := f.client.Patch(ctx, s, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("changing the Skyhook: %w", err)
	}
	return nil
}

// setVersion sets the version of every package.
func setVersion(s *v1alpha1.SkyhookSpec, patch int) {
	for name, p := range s.Packages {
		p.Version = versionOf(patch)
		s.Packages[name] = p
	}
}

// upgrade raises the version of every package. From then on a DeploymentPolicy applies, with batches that double: the first has a
// hundredth of the nodes, and the budget is a fifth of them unless another one is set.
func (f *simulation) upgrade(ctx context.Context) error {
	p := &v1alpha1.DeploymentPolicy{ObjectMeta: metav1.ObjectMeta{Name: objectName}}
	budget, first := int64(f.budget), int64(max(1, f.nodes/100))
	if budget == 0 {
		budget = int64(max(1, f.nodes/5))
	}
	p.Spec.Default.Budget.Count = &budget
	p.Spec.Default.Strategy.Exponential = &v1alpha1.ExponentialStrategy{BatchStrategy: v1alpha1.BatchStrategy{InitialBatch: &first}}
	if err := f.client.Create(ctx, p); err != nil {
		return fmt.Errorf("creating the DeploymentPolicy: %w", err)
	}
	return f.editSkyhook(ctx, func(s *v1alpha1.SkyhookSpec) {
		setVersion(s, firstVersion+1)
		s.DeploymentPolicy, s.InterruptionBudget = objectName, v1alpha1.InterruptionBudget{}
	})
}

// changeConfig changes a file of every package.
func (f *simulation) changeConfig(ctx context.Context) error {
	return f.editSkyhook(ctx, func(s *v1alpha1.SkyhookSpec) {
		for name := range s.Packages {
			s.Packages[name].ConfigMap[keyConfig] = "echo another config"
		}
	})
}

// changeWithReboot changes a file of every package that requires a reboot, which the packages of a node share.
func (f *simulation) changeWithReboot(ctx context.Context) error {
	return f.editSkyhook(ctx, func(s *v1alpha1.SkyhookSpec) {
		for name := range s.Packages {
			s.Packages[name].ConfigMap[keyReboot] = "2"
		}
	})
}

// uninstall deletes the Skyhook, which uninstalls its packages first.
func (f *simulation) uninstall(ctx context.Context) error {
	if err := f.client.Delete(ctx, &v1alpha1.Skyhook{ObjectMeta: metav1.ObjectMeta{Name: objectName}}); err != nil {
		return fmt.Errorf("deleting the Skyhook: %w", err)
	}
	return nil
}

// createNodeOp creates a NodeOp that cordons every node, runs a command there and uncordons it, on a twentieth of the nodes at the
// same time unless another budget is set.
func (f *simulation) createNodeOp(ctx context.Context) error {
	yes := true
	o := &opv1.NodeOp{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: objectName}}
	o.Spec.Command = []string{"uname", "-r"}
	o.Spec.Image = "registry.example/tools:1"
	o.Spec.Cordon, o.Spec.Concurrency = &yes, new(int32(f.budget))
	if f.budget == 0 {
		o.Spec.Concurrency = new(int32(max(1, f.nodes/20)))
	}
	if err := f.client.Create(ctx, o); err != nil {
		return fmt.Errorf("creating the NodeOp: %w", err)
	}
	return nil
}

// isSkyhookComplete reports whether the Skyhook is complete on every node, and how far it is.
func (f *simulation) isSkyhookComplete(ctx context.Context) (bool, string, error) {
	s := &v1alpha1.Skyhook{}
	if err := f.client.Get(ctx, client.ObjectKey{Name: objectName}, s); err != nil {
		return false, "", fmt.Errorf("reading the Skyhook: %w", err)
	}
	complete := s.Status.Status == v1alpha1.StatusComplete && s.Status.ObservedGeneration == s.Generation && int(s.Status.NodesTotal) == f.nodes
	return complete, s.Status.CompleteNodes, nil
}

// isSkyhookGone reports whether the Skyhook was deleted.
func (f *simulation) isSkyhookGone(ctx context.Context) (bool, string, error) {
	s := &v1alpha1.Skyhook{}
	err := f.client.Get(ctx, client.ObjectKey{Name: objectName}, s)
	if client.IgnoreNotFound(err) != nil {
		return false, "", fmt.Errorf("reading the Skyhook: %w", err)
	}
	return err != nil, s.Status.CompleteNodes, nil
}

// isNodeOpComplete reports whether the NodeOp has finished on every node, and how far it is.
func (f *simulation) isNodeOpComplete(ctx context.Context) (bool, string, error) {
	o := &opv1.NodeOp{}
	if err := f.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: objectName}, o); err != nil {
		return false, "", fmt.Errorf("reading the NodeOp: %w", err)
	}
	complete := o.Status.Phase == opv1.PhaseCompleted && int(o.Status.Completed) == f.nodes
	return complete, fmt.Sprintf("%d/%d", o.Status.Completed, o.Status.Total), nil
}

// waitUntil returns when the work is complete and no pod or Job runs.
func (f *simulation) waitUntil(ctx context.Context, o *operator, isComplete progress) error {
	for {
		complete, count, err := isComplete(f, ctx)
		if err != nil {
			return err
		}
		if complete && f.active.Load() == 0 {
			return nil
		}
		if f.verbose {
			fmt.Fprintf(os.Stderr, "complete: %s, active: %d\n", count, f.active.Load())
		}
		select {
		case <-o.ended:
			return errors.New("the operator exited; run again with -v")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(250 * time.Millisecond):
		}
	}
}
