// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// published are descriptions in the shape of the packages in use, and one that
// says everything the format can say.
func published(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/published/*.json")
	if err != nil || len(files) < 8 {
		t.Fatalf("found %d published descriptions: %v", len(files), err)
	}
	out := map[string][]byte{}
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(f)] = content
	}
	return out
}

// TestPublished: what is in use is valid and comes back as it was.
func TestPublished(t *testing.T) {
	for name, content := range published(t) {
		c, found := Parse(content)
		if found.Failed() {
			t.Errorf("%s:\n%s", name, found.Text())
			continue
		}
		if name != "everything.json" && len(found.Only(Warning)) > 2 {
			t.Errorf("%s is used as it is, but gives %s", name, found.Text())
		}
		written, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(generic(t, content), generic(t, written)); diff != "" {
			t.Errorf("%s does not come back as it was (-read +written):\n%s", name, diff)
		}
		again, found := Parse(written)
		if found.Failed() || !cmp.Equal(c, again) {
			t.Errorf("%s differs when it is read again:\n%s%s", name, found.Text(), cmp.Diff(c, again))
		}
	}
}

func generic(t *testing.T, content []byte) any {
	t.Helper()
	var v any
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestKeyOrder: a description is written in one order, whatever it was read in.
func TestKeyOrder(t *testing.T) {
	c, found := Parse(published(t)["everything.json"])
	if found.Failed() {
		t.Fatal(found.Text())
	}
	written, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	at := -1
	for _, key := range []string{
		`"schema_version"`, `"package_name"`, `"package_version"`, `"expected_config_files"`, `"modes"`,
		`"upgrade"`, `"upgrade-check"`, `"apply"`,
		`"name": "rc3"`, `"path": "bin/rc3"`, `"env:TOKEN"`, `3`, `"env": {`, `"timeout": "1h30m0s"`, `"requires_interrupt": false`,
		`"apply-check"`, `"config"`, `"interrupt"`, `"$schema"`, `"root_dir"`, `"vendor"`,
	} {
		next := strings.Index(string(written)[at+1:], key)
		if next < 0 {
			t.Fatalf("%s is not where it should be in:\n%s", key, written)
		}
		at += 1 + next
	}
}

func TestParsedFields(t *testing.T) {
	c, _ := Parse(published(t)["everything.json"])
	no := false
	want := []Step{{
		Name: "rc3", Path: "bin/rc3", Arguments: []string{"env:TOKEN", "plain"}, ReturnCodes: []int{0, 3}, OnHost: true,
		Env: map[string]string{"LANG": "C", "EMPTY": ""}, Timeout: 90 * time.Minute, RequiresInterrupt: &no,
	}}
	if diff := cmp.Diff(want, c.Steps(ModeApply)); diff != "" {
		t.Error(diff)
	}
	if c.Steps(ModeUpgrade)[0].OnHost {
		t.Error("on_host: false was not read")
	}
	if c.Steps(ModeApplyCheck)[0].Env != nil {
		t.Error("an absent env is not nil")
	}
	if got := (Step{Path: "./a//b.sh"}); got.File() != "a/b.sh" || got.Title() != "./a//b.sh" {
		t.Errorf("File %q, Title %q", got.File(), got.Title())
	}
}

func TestUnmarshal(t *testing.T) {
	var c Config
	if err := json.Unmarshal(published(t)["tuning.json"], &c); err != nil || c.Name != "tuning" {
		t.Errorf("%v %v", c.Name, err)
	}
	err := json.Unmarshal([]byte(`{"schema_version":"v1"}`), &c)
	var invalid *InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) != 4 {
		t.Fatalf("got %v", err)
	}
	const want = `config.json $: the key "expected_config_files" is missing (and 3 more errors)`
	if invalid.Error() != want || !IsInvalid(err) {
		t.Errorf("got %s", invalid.Error())
	}
	if c.Name != "tuning" {
		t.Error("a failed read changed the value")
	}
}

// TestSchemas: the schemas and the code name the same keys.
func TestSchemas(t *testing.T) {
	var root, step struct {
		ID         string `json:"$id"`
		Properties map[string]struct {
			Properties map[string]any
			Pattern    string
		}
	}
	for i, into := range []any{&root, &step} {
		if err := json.Unmarshal(Schemas()[i], into); err != nil {
			t.Fatal(err)
		}
	}
	if root.ID != "v1/skyhook-agent-schema.json" || step.ID != "v1/step-schema.json" {
		t.Errorf("ids %q and %q", root.ID, step.ID)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(rootKeys)), slices.Sorted(maps.Keys(root.Properties))); diff != "" {
		t.Errorf("root keys: %s", diff)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(append([]string{"requires_interrupt"}, stepKeys...))), slices.Sorted(maps.Keys(step.Properties))); diff != "" {
		t.Errorf("step keys: %s", diff)
	}
	var words []string
	for _, m := range Modes() {
		words = append(words, string(m))
	}
	slices.Sort(words)
	if diff := cmp.Diff(words, slices.Sorted(maps.Keys(root.Properties["modes"].Properties))); diff != "" {
		t.Errorf("modes: %s", diff)
	}
	if got := step.Properties["timeout"].Pattern; got != timeSpan().String() {
		t.Errorf("the time span's pattern is %s in the schema and %s in the code", got, timeSpan())
	}
	for _, key := range []string{"package_name", "package_version", "name", "timeout"} {
		if forms[key].rule == "" {
			t.Errorf("no words for the pattern of %s", key)
		}
	}
}

// TestTimeoutPrecision: every time span that is accepted survives writing.
func TestTimeoutPrecision(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1.5s": 1500 * time.Millisecond, "1ms": time.Millisecond, "1.0009ms": time.Millisecond,
		"0.2ms": -1, "0h": -1, "10us": 0, "-5s": 0, "": 0, "5": 0,
	} {
		got := decodeTimeout(in)
		if got != want {
			t.Errorf("%q is %v, want %v", in, got, want)
		}
		if got > 0 && decodeTimeout(got.String()) != got {
			t.Errorf("%q is written as %q", in, got)
		}
	}
}

func TestProblemsJSON(t *testing.T) {
	_, found := Parse([]byte(`{"schema_version":"v1","package_name":"a","package_version":"1.0.0","expected_config_files":[],"modes":{},"x":1}`))
	out, err := found.JSON()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
  "valid": false,
  "errors": 1,
  "warnings": 1,
  "problems": [
    {
      "severity": "error",
      "rule": "no-steps",
      "file": "config.json",
      "path": "$.modes",
      "message": "no mode has a step, so the package does nothing",
      "fix": "add a step to apply or config, and its check"
    },
    {
      "severity": "warning",
      "rule": "unknown-root-key",
      "file": "config.json",
      "path": "$.x",
      "message": "the key \"x\" is not known; it has no effect",
      "fix": "remove it, or use one of expected_config_files, modes, package_name, package_version, privileges, rollback and schema_version"
    }
  ]
}`
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Error(diff)
	}
	out, err = Problems(nil).JSON()
	if err != nil || !strings.Contains(string(out), `"problems": []`) || !strings.Contains(string(out), `"valid": true`) {
		t.Errorf("no problems are %s, %v", out, err)
	}
	if Problems(nil).Err() != nil || Problems(nil).Failed() {
		t.Error("no problems are an error")
	}
}

func TestSortedIsNatural(t *testing.T) {
	at := func(path string) Problem { return Problem{File: ConfigFile, Path: path} }
	got := Problems{at("$.a[10]"), {File: "a.sh"}, at("$.a[2]"), at("$"), at("$.a[2]"), at("$.a[2].b")}.sortByPlace()
	want := Problems{at("$"), at("$.a[2]"), at("$.a[2].b"), at("$.a[10]"), {File: "a.sh"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestManyProblems: the output is bounded, and a large description does not
// make it slow. A larger one is refused as a whole.
func TestManyProblems(t *testing.T) {
	many := func(n int, element string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	step := `{"name":"a","path":"/a","arguments":[],"returncodes":[0],"on_host":true,"idempotence":true,"upgrade_step":false}`
	text := func(files int) []byte {
		return []byte(`{"schema_version":"v1","package_name":"a","package_version":"1.0.0","expected_config_files":` +
			many(files, `""`) + `,"modes":{"apply":` + many(600, step) + `,"apply-check":` + many(300, step) + `}}`)
	}
	_, found := Parse(text(9000))
	if len(found) != mostProblems+1 {
		t.Fatalf("%d problems", len(found))
	}
	want := Problem{Severity: Error, Rule: "more", File: ConfigFile, Message: "there are 11496 more problems", Fix: "correct those above and look again"}
	if diff := cmp.Diff(want, found[mostProblems]); diff != "" {
		t.Error(diff)
	}
	for _, large := range [][]byte{text(maxValues), []byte(`{"a":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`)} {
		if _, found := Parse(large); len(found) != 1 || found[0].Rule != "json-syntax" || !strings.Contains(found[0].Message, "more than 20000 values, or is nested too deeply") {
			t.Errorf("%+v", found)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	content := published(b)["tuned.json"]
	for b.Loop() {
		if _, found := Parse(content); found.Failed() {
			b.Fatal(found)
		}
	}
}

// BenchmarkFirst is what the first description costs a process: the schemas
// are compiled for it.
func BenchmarkFirst(b *testing.B) {
	for b.Loop() {
		compileSchema()
	}
}
