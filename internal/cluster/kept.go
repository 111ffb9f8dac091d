// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// compiledBefore has what the last pass compiled, so that the next one compiles only what has changed since. It may be lost at any
// moment: then everything is compiled.
type compiledBefore struct {
	mu       sync.Mutex
	skyhooks map[rollout.Ref]*skyhook.Compiled
}

// of returns what was made of a Skyhook; nil if nothing was.
func (b *compiledBefore) of(ref rollout.Ref) *skyhook.Compiled {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.skyhooks[ref]
}

// set replaces what was compiled.
func (b *compiledBefore) set(skyhooks map[rollout.Ref]*skyhook.Compiled) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.skyhooks = skyhooks
}

// compileSkyhook compiles a Skyhook, and takes over the nodes that have not changed since the pass before.
func (o *Objects) compileSkyhook(in *skyhook.Input) *skyhook.Compiled {
	compiled := skyhook.CompileAfter(o.before.of(skyhook.Ref(in.Skyhook.Name)), in)
	if o.onDifference != nil {
		if text := compiled.Difference(skyhook.Compile(in)); text != "" {
			o.onDifference(text)
		}
	}
	return compiled
}

// keepPods replaces pods by those of the pass before, where these are the same version: what is compiled is taken over for the same
// pointers only. Lists copy what a cache holds, all into one array, so what is kept of a list is copied once more: a pod in that array
// would keep the memory of all others.
func (v *observer) keepPods(pods []*corev1.Pod) {
	shown := make(map[types.UID]*corev1.Pod, len(pods))
	for i, p := range pods {
		known := v.pods[p.UID]
		if known == nil || known.ResourceVersion != p.ResourceVersion || p.ResourceVersion == "" {
			listed := *p
			known = &listed
		}
		shown[p.UID], pods[i] = known, known
	}
	v.pods = shown
}
