// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packagecli

import (
	"fmt"
	"testing"
	"testing/fstest"

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
