// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packagecli

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/skyhook-k8s/skyhook/internal/image"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// TestLocalName: what a stranger calls a package never becomes a path here.
func TestLocalName(t *testing.T) {
	for _, c := range []struct{ name, version, want string }{
		{"motd", "1.2.0", "motd-1.2.0"},
		{"../../.config/systemd/user/x", "1.2.0", ""},
		{"motd", "1.2.0/../../../x", ""},
		{"/etc/cron.d/x", "1.2.0", ""},
		{`..\\x`, "1.2.0", ""},
		{"", "1.2.0", ""},
		{"motd", "", ""},
	} {
		text := fmt.Sprintf(`{"schema_version":"v1","root_dir":"root_dir","package_name":"%s","package_version":"%s","modes":{}}`, c.name, c.version)
		config, problems := pack.Validate(fstest.MapFS{"config.json": {Data: []byte(text)}}, pack.Want{})
		if got := localName(config, problems); got != c.want {
			t.Errorf("%s %s is called %q here, want %q", c.name, c.version, got, c.want)
		}
	}
}

// A largeIndex has one image with a layer of more than is read.
type largeIndex struct{ index }

type index = v1.ImageIndex // which has a method of that name

type largeImage struct{ v1.Image }

func (largeIndex) IndexManifest() (*v1.IndexManifest, error) {
	return &v1.IndexManifest{Manifests: []v1.Descriptor{{MediaType: types.OCIManifestSchema1}}}, nil
}
func (largeIndex) Image(v1.Hash) (v1.Image, error) { return largeImage{}, nil }
func (largeImage) Manifest() (*v1.Manifest, error) {
	return &v1.Manifest{Layers: []v1.Descriptor{{Size: image.MaxBytes + 1}}}, nil
}

func TestPullIsBounded(t *testing.T) {
	if err := checkSize(largeIndex{empty.Index}); err == nil || !strings.Contains(err.Error(), "more than 1 GiB") {
		t.Errorf("a large image is pulled: %v", err)
	}
	if err := checkSize(empty.Index); err != nil {
		t.Error(err)
	}
}
