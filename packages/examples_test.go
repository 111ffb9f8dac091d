// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	api "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	format "github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/test/controlplane"
)

// readExamples returns the YAML blocks of the pages, by page and number.
func readExamples(t *testing.T) map[string]string {
	t.Helper()
	pages, err := filepath.Glob("../docs/packages/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range listPackages(t) {
		pages = append(pages, filepath.Join(name, "README.md"))
	}
	found := map[string]string{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
		if len(blocks) == 0 {
			t.Errorf("%s has no example", page)
		}
		for i, block := range blocks {
			found[fmt.Sprintf("%s-%d", strings.TrimPrefix(page, "../"), i+1)] = block[1]
		}
	}
	return found
}

// TestExamplesAccepted creates each example on a real API server.
func TestExamplesAccepted(t *testing.T) {
	if testing.Short() {
		t.Skip("short: no API server is started")
	}
	t.Parallel()
	plane, err := controlplane.Start(context.Background(), controlplane.Options{CRDs: []string{"../chart/files/crds"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	}()
	client, err := dynamic.NewForConfig(plane.Config)
	if err != nil {
		t.Fatal(err)
	}
	skyhooks := client.Resource(api.GroupVersion.WithResource("skyhooks"))
	for name, text := range readExamples(t) {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(text), &object.Object); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := skyhooks.Create(context.Background(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := skyhooks.Delete(context.Background(), object.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestExamplesWork installs each example on simulated hosts of both families, repeats it without a change, and
// uninstalls it without a trace.
func TestExamplesWork(t *testing.T) {
	requireRoot(t)
	for name, text := range readExamples(t) {
		var example api.Skyhook
		if err := yaml.UnmarshalStrict([]byte(text), &example); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, flavor := range []string{"debian-12", "rocky-9"} {
			t.Run(flavor+"/"+strings.ReplaceAll(name, "/", "-"), func(t *testing.T) {
				t.Parallel()
				h, err := newHost(t.TempDir(), flavor, nil)
				if err != nil {
					t.Fatal(err)
				}
				s := &scenario{t: t, host: h, uid: "11111111-2222-3333-4444-555555555555", installed: map[string]install{}}
				s.testExample(example)
			})
		}
	}
}

// testExample installs the packages of an example in the order of their names, and uninstalls them in reverse order.
func (s *scenario) testExample(example api.Skyhook) {
	t := s.t
	was, err := s.host.readTree()
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(example.Spec.Packages))
	if len(names) == 0 {
		t.Fatal("the example has no package")
	}
	for _, name := range names {
		p := example.Spec.Packages[name]
		dir := path.Base(p.Image)
		if _, err := os.Stat(filepath.Join(dir, "config.json")); err != nil {
			t.Fatalf("package %s is not in this folder: %v", name, err)
		}
		var env []string
		for _, e := range p.Env {
			value := e.Value
			if e.ValueFrom != nil {
				value = "from-elsewhere"
			}
			env = append(env, e.Name+"="+value)
		}
		config := map[string]string{}
		for key, value := range p.ConfigMap {
			config[key] = string(value)
		}
		s.installed[name] = install{dir: dir, version: string(p.Version), config: config, env: env}
		s.runStagesTwice(name, format.ModeApply, format.ModeConfig)
	}
	for _, name := range slices.Backward(names) {
		s.runStagesTwice(name, format.ModeUninstall)
	}
	now, err := s.host.readTree()
	if err != nil {
		t.Fatal(err)
	}
	// Folders that a user's own script creates may remain.
	left := slices.DeleteFunc(now.diff(was), func(line string) bool { return line == "+ /etc/motd.d" || line == "+ /etc/cron.d" })
	if len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}

// runStagesTwice runs stages and repeats them.
func (s *scenario) runStagesTwice(name string, modes ...format.Mode) {
	lines, failed, err := s.runModes(name, s.installed[name], modes)
	if err != nil || failed {
		s.t.Fatalf("%s: %v\n%s", name, err, strings.Join(lines, "\n"))
	}
	after, err := s.host.readTree()
	if err == nil {
		_, err = s.recordedCalls()
	}
	if err == nil {
		err = s.repeatStages(name, s.installed[name], modes, after)
	}
	if err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
}
