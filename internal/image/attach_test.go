// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// An attached document is found by registries that know referrers and by those that do not, and attaching it twice is
// attaching it once.
func TestAttach(t *testing.T) {
	for name, knows := range map[string]bool{"with referrers": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(registry.New(registry.WithReferrersSupport(knows), registry.Logger(log.New(io.Discard, "", 0))))
			defer server.Close()
			ref := strings.TrimPrefix(server.URL, "http://") + "/team/demo:1.0.0"
			g, ctx := Registry{PlainHTTP: true}, context.Background()
			idx := simple(t, Recipe{}, amd64, arm64)
			if _, err := g.Push(ctx, ref, idx); err != nil {
				t.Fatal(err)
			}
			of, err := idx.Digest()
			if err != nil {
				t.Fatal(err)
			}
			if found, err := g.Attached(ctx, ref, of, "application/spdx+json"); err != nil || len(found) != 0 {
				t.Fatalf("before anything is attached: %v, %v", found, err)
			}
			a := Artifact{Type: "application/spdx+json", Content: []byte(`{"spdxVersion":"SPDX-2.3"}`)}
			var first string
			for range 2 {
				at, err := g.Attach(ctx, ref, idx, a)
				if err != nil {
					t.Fatal(err)
				}
				if first != "" && at != first {
					t.Errorf("attached at %s and then at %s", first, at)
				}
				first = at
			}
			if _, err := g.Attach(ctx, ref, idx, Artifact{Type: "text/plain", Content: []byte("other")}); err != nil {
				t.Fatal(err)
			}
			found, err := g.Attached(ctx, ref, of, a.Type)
			if err != nil || len(found) != 1 || found[0] != first {
				t.Fatalf("found %v, %v, want %s", found, err, first)
			}
			got, err := g.Artifact(ctx, found[0])
			if err != nil || got.Type != a.Type || string(got.Content) != string(a.Content) {
				t.Errorf("read %s %s, %v", got.Type, got.Content, err)
			}
		})
	}
}

// A document in a layout is not taken for an image of it.
func TestAttachInLayout(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "layout")
	idx := simple(t, Recipe{}, amd64, arm64)
	if err := WriteLayout(dir, Named{Name: "example.org/demo:1", Index: idx}); err != nil {
		t.Fatal(err)
	}
	if err := AttachInLayout(dir, idx, Artifact{Type: "application/spdx+json", Content: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	images, err := ReadFile(dir)
	if err != nil || len(images) != 1 || digest(t, images[0].Index) != digest(t, idx) {
		t.Fatalf("the layout holds %v, %v", images, err)
	}
	if err := AttachInLayout(t.TempDir(), idx, Artifact{}); err == nil || !strings.Contains(err.Error(), "attaching") {
		t.Errorf("a folder that is no layout gives %v", err)
	}
}
