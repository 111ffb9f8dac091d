// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	nodeop "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	skyhook "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// TestExamples applies existing manifests of users: the API server accepts them unchanged, no field is lost, and the Go
// types have all fields.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("testdata/examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, doc := range strings.Split(string(text), "\n---\n") {
			t.Run(fmt.Sprintf("%s/%d", strings.TrimSuffix(filepath.Base(file), ".yaml"), i), func(t *testing.T) {
				posted := parseObject(t, kinds["skyhook"], doc)
				kind := posted.GroupVersionKind()
				stored, err := resourceClient(t, kind).Create(context.Background(), posted.DeepCopy(), metav1.CreateOptions{
					DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
				if err != nil {
					t.Fatal(err)
				}
				if lost := missing("spec", posted.Object["spec"], stored.Object["spec"]); lost != nil {
					t.Errorf("lost or changed fields: %v", lost)
				}
				if d := cmp.Diff(stored.Object["spec"], roundTrip(t, stored).Object["spec"], ignoreZero); d != "" {
					t.Errorf("the Go type changes the stored object (-stored +typed):\n%s", d)
				}
				if d := cmp.Diff(posted.Object["spec"], roundTrip(t, posted).Object["spec"], ignoreZero); d != "" {
					t.Errorf("the Go type changes the posted object (-posted +typed):\n%s", d)
				}
			})
		}
	}
}

// ignoreZero ignores fields that are absent on one side and zero on the other, where both mean the same.
var ignoreZero = cmp.FilterPath(func(p cmp.Path) bool {
	i, isMap := p.Last().(cmp.MapIndex)
	if !isMap {
		return false
	}
	a, b := i.Values()
	zero := func(v any) bool { return v == nil || v == false || v == "" || v == int64(0) }
	get := func(ok bool, v func() any) any {
		if !ok {
			return nil
		}
		return v()
	}
	return zero(get(a.IsValid(), func() any { return a.Interface() })) && zero(get(b.IsValid(), func() any { return b.Interface() }))
}, cmp.Ignore())

// roundTrip decodes an object into its Go type, strictly, and encodes it again.
func roundTrip(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	text, err := json.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{skyhook.AddToScheme, nodeop.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	into, _, err := codecs.UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		t.Fatalf("reading %s: %v", o.GetName(), err)
	}
	var b bytes.Buffer
	if err := codecs.LegacyCodec(skyhook.GroupVersion, nodeop.GroupVersion).Encode(into, &b); err != nil {
		t.Fatal(err)
	}
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	return out
}

// missing lists the paths that the second value lacks or has changed.
func missing(path string, want, got any) []string {
	switch w := want.(type) {
	case map[string]any:
		g, isMap := got.(map[string]any)
		if !isMap {
			return []string{path}
		}
		var all []string
		for k, v := range w {
			all = append(all, missing(path+"."+k, v, g[k])...)
		}
		slices.Sort(all)
		return all
	case []any:
		g, isList := got.([]any)
		if !isList || len(g) != len(w) {
			return []string{path}
		}
		var all []string
		for i := range w {
			all = append(all, missing(fmt.Sprintf("%s[%d]", path, i), w[i], g[i])...)
		}
		return all
	}
	if !cmp.Equal(want, got) {
		return []string{path}
	}
	return nil
}

// TestDefaults pins the defaults that the API server sets.
func TestDefaults(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/defaults.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(archive.Files); i += 2 {
		in, out := archive.Files[i], &archive.Files[i+1]
		kind := kinds[strings.Fields(in.Name)[0]]
		stored, err := resourceClient(t, kind).Create(context.Background(), parseObject(t, kind, string(in.Data)), metav1.CreateOptions{
			DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			t.Fatalf("%s: %v", in.Name, err)
		}
		got, err := yaml.Marshal(stored.Object["spec"])
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			out.Data = got
		} else if d := cmp.Diff(string(out.Data), string(got)); d != "" {
			t.Errorf("%s (-want +got):\n%s", in.Name, d)
		}
	}
	if *update {
		if err := os.WriteFile("testdata/defaults.txtar", txtar.Format(archive), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// warnings collects the warnings of the API server.
type warnings struct {
	sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.Lock()
	defer w.Unlock()
	w.texts = append(w.texts, text)
}

// TestUnknownFields checks that an unknown field is dropped with a warning, so that users notice a spelling mistake.
func TestUnknownFields(t *testing.T) {
	seen := &warnings{}
	config := rest.CopyConfig(startServer(t))
	config.WarningHandler = seen
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	skyhooks := client.Resource(kinds["skyhook"].GroupVersion().WithResource("skyhooks"))
	stored, err := skyhooks.Create(context.Background(), parseObject(t, kinds["skyhook"], "spec: {pause: true, packages: {aa: {version: 1.0.0, image: repo, tag: x}}}"),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationWarn})
	if err != nil {
		t.Fatal(err)
	}
	if _, found, _ := unstructured.NestedFieldNoCopy(stored.Object, "spec", "pause"); found {
		t.Error("spec.pause is kept")
	}
	slices.Sort(seen.texts)
	if d := cmp.Diff([]string{`unknown field "spec.packages.aa.tag"`, `unknown field "spec.pause"`}, seen.texts); d != "" {
		t.Error(d)
	}
}

// TestUninstallHasThreeStates checks that an absent uninstall, a disabled one and an enabled one are different.
func TestUninstallHasThreeStates(t *testing.T) {
	for text, want := range map[string]*skyhook.Uninstall{
		"spec: {packages: {aa: {version: 1.0.0, image: repo}}}":                                          nil,
		"spec: {packages: {aa: {version: 1.0.0, image: repo, uninstall: {enabled: false}}}}":             {},
		"spec: {packages: {aa: {version: 1.0.0, image: repo, uninstall: {enabled: true, apply: true}}}}": {Enabled: true, Apply: true},
	} {
		stored, err := resourceClient(t, kinds["skyhook"]).Create(context.Background(), parseObject(t, kinds["skyhook"], text), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Fatal(err)
		}
		var s skyhook.Skyhook
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, &s); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, s.Spec.Packages["aa"].Uninstall); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
}

// TestNodeStateFormat pins the value of the annotation on nodes, which other programs compare as text.
func TestNodeStateFormat(t *testing.T) {
	got, err := json.Marshal(skyhook.NodeState{
		skyhook.PackageKey("spencer", "3.2.3"): {Name: "spencer", Version: "3.2.3", Image: "ghcr.io/x/y", ContainerSHA: "sha256:1", Stage: skyhook.StagePostInterrupt, State: skyhook.StateErroring, Restarts: 2},
		skyhook.PackageKey("dexter", "1.2.3"):  {Name: "dexter", Version: "1.2.3", Image: "ghcr.io/x/y", Stage: skyhook.StageConfig, State: skyhook.StateComplete},
	})
	want := `{"dexter|1.2.3":{"name":"dexter","version":"1.2.3","image":"ghcr.io/x/y","stage":"config","state":"complete"},` +
		`"spencer|3.2.3":{"name":"spencer","version":"3.2.3","image":"ghcr.io/x/y","containerSHA":"sha256:1","stage":"post-interrupt","state":"erroring","restarts":2}}`
	if err != nil || string(got) != want {
		t.Errorf("got %s %v\nwant %s", got, err, want)
	}
	if got, err := json.Marshal(skyhook.NodeState{}); err != nil || string(got) != "{}" {
		t.Errorf("empty: %s %v", got, err)
	}
}
