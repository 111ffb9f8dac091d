// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// keptNodes are what the last pass compiled of Skyhooks, and asked about nodes. What has not changed since is taken over. They may be lost at any moment: then
// everything is compiled.
type keptNodes struct {
	skyhooks     map[rollout.Ref]*skyhook.Compiled
	answers      careAnswers
	onDifference func(string) // see Options.OnDifference
}

// compile compiles a Skyhook, and takes over the nodes that have not changed since the pass before.
func (k keptNodes) compile(in *plan.Input) *skyhook.Compiled {
	compiled := skyhook.CompileAfter(k.skyhooks[plan.Ref(in.Skyhook.Name)], in)
	if k.onDifference != nil {
		if text := compiled.Difference(skyhook.Compile(in)); text != "" {
			k.onDifference(text)
		}
	}
	return compiled
}

// versions are the objects of one kind that were listed at the last time, by UID.
type versions[T any] map[types.UID]*T

// keepVersions replaces objects by those of the pass before, where these are the same version, and returns all of them: what is compiled
// is taken over for the same pointers only. Lists copy what a cache holds, all into one array, so what is kept of a list is copied once
// more: an object in that array would keep the memory of all others.
func keepVersions[T any, P interface {
	*T
	metav1.Object
}](before versions[T], objects []*T) versions[T] {
	shown := make(versions[T], len(objects))
	for i, o := range objects {
		uid, version := P(o).GetUID(), P(o).GetResourceVersion()
		known := before[uid]
		if known == nil || P(known).GetResourceVersion() != version || version == "" {
			known = new(*o)
		}
		shown[uid], objects[i] = known, known
	}
	return shown
}
