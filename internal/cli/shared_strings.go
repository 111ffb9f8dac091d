// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/cluster"
)

// sharedStrings has strings that are the same on many nodes, each once: names of labels and annotations, and most of their values.
type sharedStrings struct {
	mu    sync.Mutex
	known map[string]string
}

// Limits of sharedStrings: values of one node alone must not stay for ever.
const (
	maxSharedStrings = 10_000
	maxSharedLength  = 64
)

// stripNode removes from a node what is not read, and shares the strings that are left with other nodes.
func (s *sharedStrings) stripNode(n *corev1.Node) *corev1.Node {
	cluster.StripNode(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	n.Labels, n.Annotations = s.shareAll(n.Labels), s.shareAll(n.Annotations)
	return n
}

func (s *sharedStrings) shareAll(m map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	out := make(map[string]string, len(m))
	for key, value := range m {
		out[s.share(key)] = s.share(value)
	}
	return out
}

// share returns a string that equals text.
func (s *sharedStrings) share(text string) string {
	if known, ok := s.known[text]; ok {
		return known
	}
	if len(text) <= maxSharedLength && len(s.known) < maxSharedStrings {
		s.known[text] = text
	}
	return text
}
