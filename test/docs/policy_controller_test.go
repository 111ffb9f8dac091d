// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// policyTester has policy-controller's own engine check an image, and returns what it says. "make policy-controller" builds the program and
// says where it is.
func policyTester(t *testing.T, policy, image string) (isAdmitted bool, text string) {
	t.Helper()
	cmd := exec.Command(os.Getenv("SKYHOOK_POLICY_TESTER"), "-policy", policy, "-image", image, "-log-level", "error")
	out, err := cmd.CombinedOutput()
	var hasFailed *exec.ExitError
	if err != nil && !errors.As(err, &hasFailed) {
		t.Fatal(err)
	}
	return err == nil, string(out)
}

// TestPolicyControllerVerifiesSignatures has policy-controller check the images of pods of packages and NodeOps with the policy of
// docs/kyverno, whose registry and key are replaced, after kubectl skyhook package sign has signed some of them. It checks the image of each
// container and init container by itself, in the namespaces that have its label: what else a pod has makes no difference.
func TestPolicyControllerVerifiesSignatures(t *testing.T) {
	if os.Getenv("SKYHOOK_POLICY_TESTER") == "" {
		t.Skip(`SKYHOOK_POLICY_TESTER does not name policy-controller's program: run "make policy-controller", which builds it`)
	}
	folder := t.TempDir()
	s, host, public := signImages(t, folder, "team/")
	text, err := os.ReadFile("../../docs/kyverno/policy-controller.yaml")
	if err != nil {
		t.Fatal(err)
	}
	indented := strings.ReplaceAll(strings.TrimSpace(public), "\n", "\n"+strings.Repeat(" ", 10))
	s.write("policy.yaml", examplePublicKey.ReplaceAllString(strings.ReplaceAll(string(text), "registry.example.org", host), indented))
	for _, c := range []struct {
		what, image string
		isAdmitted  bool
		want        string
	}{
		{"a signed package or NodeOp", host + "/team/signed:1.0.0", true, ""},
		{"an unsigned package or NodeOp", host + "/team/unsigned:1.0.0", false, "no signatures found"},
		{"a package or NodeOp that others signed", host + "/team/by-others:1.0.0", false, "no matching signatures"},
		{"a package whose tag moved after it was signed", host + "/team/moved:1.0.0", false, "no signatures found"},
		{"the agent", "ghcr.io/skyhook-k8s/skyhook/agent:v0.1.0", true, ""},
		{"the pause image", "registry.k8s.io/pause:3.10", true, ""},
		{"an image that no policy names", "registry.example.com/other:1", false, "is uncovered by policy"},
	} {
		isAdmitted, text := policyTester(t, filepath.Join(folder, "policy.yaml"), c.image)
		if isAdmitted != c.isAdmitted || !strings.Contains(text, c.want) {
			t.Errorf("%s: admitted %v, want %v and %q:\n%s", c.what, isAdmitted, c.isAdmitted, c.want, text)
		}
	}
}

// TestPolicyControllerIgnoresVolumes: what docs/kyverno/README.md says of policy-controller is true as long as its validator reads all
// kinds of containers of a pod, and no volumes.
func TestPolicyControllerIgnoresVolumes(t *testing.T) {
	if os.Getenv("SKYHOOK_POLICY_TESTER") == "" {
		t.Skip(`SKYHOOK_POLICY_TESTER does not name policy-controller's program: run "make policy-controller", which builds it`)
	}
	version := strings.TrimPrefix(filepath.Base(filepath.Dir(os.Getenv("SKYHOOK_POLICY_TESTER"))), "policy-controller-")
	out, err := exec.Command("go", "mod", "download", "-json", "github.com/sigstore/policy-controller@"+version).Output()
	if err != nil {
		t.Fatal(err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(module.Dir, "pkg", "webhook", "validator.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"ps.InitContainers", "ps.Containers", "ps.EphemeralContainers"} {
		if !strings.Contains(string(text), field) {
			t.Errorf("policy-controller %s does not read %s", version, field)
		}
	}
	if strings.Contains(string(text), "Volumes") {
		t.Errorf("policy-controller %s reads volumes: say so in docs/kyverno/README.md and docs/security.md", version)
	}
}
