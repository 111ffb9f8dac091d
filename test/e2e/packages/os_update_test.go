// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packages_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// aptRepository makes a repository of this node the only one, with two versions of a package that stands for a kernel.
const aptRepository = `
mkdir -p /var/local/e2e-apt && mv /etc/apt/sources.list* /var/local/e2e-apt/ && mkdir -p /var/local/e2e-apt/repo /etc/apt/sources.list.d
cd /var/local/e2e-apt/repo
for version in 1.0 2.0; do
  rm -rf /tmp/e2e-deb && mkdir -p /tmp/e2e-deb/DEBIAN
  printf 'Package: linux-image-e2e\nVersion: %s\nArchitecture: all\nMaintainer: T <t@example.com>\nDescription: test\n' "$version" > /tmp/e2e-deb/DEBIAN/control
  dpkg-deb --root-owner-group -b /tmp/e2e-deb "linux-image-e2e_$version.deb"
done > /dev/null
for deb in *.deb; do
  dpkg-deb -f "$deb"
  printf 'Filename: %s\nSize: %s\nSHA256: %s\n\n' "$deb" "$(stat -c %s "$deb")" "$(sha256sum "$deb" | cut -d ' ' -f 1)"
done > Packages
printf 'Origin: E2E\nLabel: E2E\nSuite: stable\nSHA256:\n %s %s Packages\n' "$(sha256sum Packages | cut -d ' ' -f 1)" "$(stat -c %s Packages)" > Release
echo 'deb [trusted=yes] file:/var/local/e2e-apt/repo ./' > /etc/apt/sources.list
apt-get update -q > /dev/null
dpkg -i linux-image-e2e_VERSION.deb > /dev/null
`

const noAptRepository = `dpkg -P linux-image-e2e > /dev/null; rm -rf /etc/apt/sources.list* && mv /var/local/e2e-apt/sources.list* /etc/apt/; rm -rf /var/local/e2e-apt /var/lib/apt/lists/*`

const installedVersion = `dpkg-query -W -f '${Version}' linux-image-e2e`

// TestOsUpdate updates six nodes, of Debian 12 and 13 where the cluster has both, of which three are right already. The plan says which;
// then these are never taken, and the others are updated and reboot once.
func TestOsUpdate(t *testing.T) {
	const name = "os-update"
	nodes := cluster.ShareInterruptibleNodes(t, 6)
	slices.Sort(nodes)
	var right, old []string
	boots := map[string]string{}
	for i, n := range nodes {
		version := "2.0"
		if i%2 == 0 {
			right = append(right, n)
		} else {
			old, version = append(old, n), "1.0"
		}
		t.Logf("node %s has Debian %s, and version %s", n, cluster.Exec(t, n, "cat /etc/debian_version"), version)
		t.Cleanup(func() { _, _ = cluster.TryExec(n, noAptRepository) })
		cluster.Exec(t, n, "set -e\n"+strings.ReplaceAll(aptRepository, "VERSION", version))
		boots[n] = cluster.BootID(t, n)
	}
	cluster.Label(t, "e2e="+name, nodes...)
	applyPolicy.Do(func() { cluster.Apply(t, policyOfFewPrivileges) })
	manifest := suite.Manifest(name, fewPrivileges, `
    os-update:
      version: 1.0.0
      image: `+suite.PackageRepository+`os-update
      interrupt: {type: reboot}
      configMap:
        origins: o=E2E,l=E2E`)
	file := filepath.Join(t.TempDir(), "os-update.yaml")
	if err := os.WriteFile(file, []byte(cluster.Localize(manifest)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := cluster.Command(suite.BuildPlugin(t), "plan", name, "-f", file, "--preflight").CombinedOutput()
	want := regexp.MustCompile(`none +3 nodes: ` + strings.Join(right, ", ") + ` .*\n +reboot +3 nodes: ` + strings.Join(old, ", ") + ` .*among them linux-image-e2e`)
	if err != nil || !want.Match(out) {
		t.Fatalf("the plan is %v\n%s", err, out)
	}

	cluster.Apply(t, manifest)
	cluster.WaitComplete(t, name)
	for _, n := range nodes {
		isRight := slices.Contains(right, n)
		if got := cluster.Exec(t, n, installedVersion); got != "2.0" {
			t.Errorf("node %s has version %s", n, got)
		}
		if hasRebooted := cluster.BootID(t, n) != boots[n]; hasRebooted == isRight {
			t.Errorf("node %s was right: %v, and rebooted: %v", n, isRight, hasRebooted)
		}
		record := cluster.Kubectl(t, "get", "node", n, "-o", `jsonpath={.metadata.annotations.skyhook\.nvidia\.com/record_`+name+`}`)
		if wasTaken := strings.Contains(record, `"admission":`); wasTaken == isRight {
			t.Errorf("node %s was right: %v, and its record is %s", n, isRight, record)
		}
	}
	cluster.RemoveSkyhook(t, name)
}
