// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/skyhook-k8s/skyhook/test/cluster/registry"
	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// TestMovedTag: a tag is moved after the first node has pulled it. With pinImages the second node pulls what the first one pulled;
// without it, what the tag has become.
func TestMovedTag(t *testing.T) {
	local, nodes := cluster.LocalCluster(t, "moves a tag in its registry"), cluster.Nodes(t, 2)
	base := cluster.PackageImage(t, "shellscript")
	for _, c := range []struct {
		name, second string
		pins         bool
	}{
		{"moved-tag", "new", false},
		{"pinned-tag", "old", true},
	} {
		if c.pins {
			cluster.SetOperator(t, "pinImages=true")
		}
		image := suite.PackageRepository + c.name
		push := func(text string) (digest string) {
			t.Helper()
			// Two repositories with one content would be one image on the node, which names only one of them.
			hash, err := local.Push(context.Background(), image+":1.0.0", addVariant(t, base, text+" "+c.name))
			if err != nil {
				t.Fatal(err)
			}
			return hash.String()
		}
		selectNodes(t, c.name, nodes...)
		old := push("old")
		cluster.Apply(t, suite.Manifest(c.name, "\n  interruptionBudget: {count: 1}", fmt.Sprintf(`
    moved:
      version: 1.0.0
      image: %s
      configMap: {apply.sh: 'cat "$SKYHOOK_DIR/skyhook_dir/variant" >> /var/log/driver; until [ -e /run/tag-is-moved ]; do sleep 0.2; done'}`, image)))
		first, second := waitForVariant(t, nodes)
		push("new")
		for _, n := range nodes {
			cluster.Exec(t, n, "touch /run/tag-is-moved")
		}
		cluster.WaitComplete(t, c.name)
		requireStages(t, first, "old "+c.name)
		requireStages(t, second, c.second+" "+c.name)
		if c.pins {
			requirePin(t, c.name, first, old)
		}
		for _, n := range nodes {
			cluster.Exec(t, n, "rm -f /run/tag-is-moved /var/log/driver")
		}
		cluster.RemoveSkyhook(t, c.name)
	}
}

// addVariant adds a file to the image of a package.
func addVariant(t *testing.T, base v1.Image, text string) v1.Image {
	t.Helper()
	added, err := registry.Image(map[string]registry.File{"skyhook-package/skyhook_dir/variant": {Content: []byte(text + "\n"), Mode: 0o644}})
	if err != nil {
		t.Fatal(err)
	}
	layers, err := added.Layers()
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(base, layers...)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// waitForVariant waits until the package runs on one of two nodes, and returns that one first.
func waitForVariant(t *testing.T, nodes []string) (first, second string) {
	t.Helper()
	suite.Eventually(t, "the package runs on one node", func() error {
		for i, n := range nodes {
			if _, err := cluster.TryExec(n, "grep -q . /var/log/driver"); err == nil {
				first, second = n, nodes[1-i]
				return nil
			}
		}
		return fmt.Errorf("it runs neither on %s", strings.Join(nodes, " nor on "))
	})
	return first, second
}

// requirePin checks that status shows the digest that the first node pulled, and who pulled it.
func requirePin(t *testing.T, name, node, digest string) {
	t.Helper()
	var s struct {
		Status struct {
			Internal struct {
				ImagePins []struct{ Package, Digest, Node string }
			}
		}
	}
	if err := cluster.Get(&s, "skyhook", name); err != nil {
		t.Fatal(err)
	}
	if pins := s.Status.Internal.ImagePins; len(pins) != 1 || pins[0].Digest != digest || pins[0].Node != node {
		t.Errorf("the pins are %+v, want %s pulled by %s", pins, digest, node)
	}
}
