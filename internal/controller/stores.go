// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

// stores are where the informers of a cache keep what they watch, by kind. Reading them copies nothing, unlike a list of the cache,
// which copies every object into one array in each pass.
type stores struct {
	mu sync.Mutex
	of map[reflect.Type]toolscache.Store
}

func newStores() *stores { return &stores{of: map[reflect.Type]toolscache.Store{}} }

// newInformer makes an informer and notes its store. A cache has one informer for each kind, unless it watches several namespaces.
func (s *stores) newInformer(lw toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	informer := toolscache.NewSharedIndexInformer(lw, kind, resync, indexers)
	s.mu.Lock()
	defer s.mu.Unlock()
	store := informer.GetStore()
	if _, isSecond := s.of[reflect.TypeOf(kind)]; isSecond {
		store = nil // none of them has everything
	}
	s.of[reflect.TypeOf(kind)] = store
	return informer
}

func (s *stores) find(kind reflect.Type) toolscache.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[kind]
}

// listStored lists all objects of a kind. The objects are those of the store and must not be changed. nil if the kind is not watched, or
// not by one informer.
func listStored[T runtime.Object](s *stores) []T {
	store := s.find(reflect.TypeFor[T]())
	if store == nil {
		return nil
	}
	stored := store.List()
	out := make([]T, 0, len(stored))
	for _, o := range stored {
		if typed, ok := o.(T); ok {
			out = append(out, typed)
		}
	}
	return out
}
