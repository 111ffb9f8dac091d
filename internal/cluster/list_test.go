// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// pagedReader answers with one page after the other, decoded from JSON as a client does it.
type pagedReader struct {
	client.Reader
	pages []string
}

func (r *pagedReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	page := r.pages[0]
	r.pages = r.pages[1:]
	return json.Unmarshal([]byte(page), list)
}

// TestPages shows that a page does not overwrite the objects of the page before.
func TestPages(t *testing.T) {
	r := &pagedReader{pages: []string{
		`{"metadata":{"continue":"x"},"items":[{"metadata":{"name":"a","labels":{"of":"a"}}},{"metadata":{"name":"b"}}]}`,
		`{"metadata":{},"items":[{"metadata":{"name":"c"}}]}`,
	}}
	var got []*v1alpha1.Skyhook
	if err := listInto(t.Context(), r, &v1alpha1.SkyhookList{}, &got, pageSize); err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[0].Name != "a" || got[1].Name != "b" || got[2].Name != "c" || len(got[2].Labels) > 0 {
		t.Errorf("got %d objects: %+v", len(got), got)
	}
}
