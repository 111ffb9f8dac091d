// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v5"
)

// librarySchema is the schema as a library for all of JSON Schema reads it.
var librarySchema = sync.OnceValue(func() *jsonschema.Schema {
	const base = "skyhook://schemas/v1/"
	c := jsonschema.NewCompiler()
	for i, name := range []string{rootSchema, stepSchema} {
		var doc map[string]any
		if err := json.Unmarshal(Schemas()[i], &doc); err != nil {
			panic(err)
		}
		delete(doc, "$id") // it is relative, for people
		if err := c.AddResource(base+name, bytes.NewReader(marshalCompact(doc))); err != nil {
			panic(err)
		}
	}
	return c.MustCompile(base + rootSchema)
})

// brokenByLibrary lists the rules that a document breaks, as place and keyword.
func brokenByLibrary(root any) []string {
	var out []string
	var collect func(e *jsonschema.ValidationError)
	collect = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			collect(cause)
		}
		if len(e.Causes) == 0 {
			keyword := path.Base(e.AbsoluteKeywordLocation)
			switch keyword {
			case "maxLength":
				keyword = "pattern"
			case "maximum":
				keyword = "minimum"
			}
			out = append(out, pathOf(root, e.InstanceLocation)+" "+keyword)
		}
	}
	err := librarySchema().Validate(root)
	if e := (*jsonschema.ValidationError)(nil); errors.As(err, &e) {
		collect(e)
	} else if err != nil {
		out = append(out, err.Error())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// pathOf is the JSON path of a JSON pointer as the library writes it.
func pathOf(value any, pointer string) string {
	at := "$"
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if pointer == "" {
			break
		}
		if plain, err := url.PathUnescape(part); err == nil {
			part = plain
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch v := value.(type) {
		case []any:
			i, _ := strconv.Atoi(part)
			at, value = fmt.Sprintf("%s[%d]", at, i), v[i]
		case map[string]any:
			at, value = at+pathMember(part), v[part]
		}
	}
	return at
}

func brokenBySchema(root any) []string {
	var out []string
	loadSchema().check(schemaPlace{at: "$"}, root, func(p schemaPlace, keyword string, _ *schemaNode, _ any) {
		out = append(out, strings.ReplaceAll(p.at, "['']", "")+" "+keyword) // the library leaves empty keys out
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// compareWithLibrary checks that a document breaks the rules that a library for JSON Schema finds.
func compareWithLibrary(t *testing.T, content []byte) {
	t.Helper()
	root, ok := readTree(content, &findings{})
	if !ok {
		return
	}
	if diff := cmp.Diff(brokenByLibrary(root), brokenBySchema(root)); diff != "" {
		t.Fatalf("%s\nby the library (-) and by us (+):\n%s", content, diff)
	}
}

// badDocuments break every rule of the schema.
func badDocuments(t testing.TB) []string {
	t.Helper()
	out := []string{
		`{}`, `[]`, `"x"`, `{"schema_version":1,"package_name":null,"package_version":[],"expected_config_files":{},"modes":[]}`,
		`{"schema_version":{},"rollback":"yes","expected_config_files":[1,"a",null],"modes":{"later":[],"apply":{},"~/%25":1,"interrupt":[{}]}}`,
		`{"schema_version":"v1","package_name":"` + strings.Repeat("语", 101) + `","package_version":"1.2.03"}`,
		`{"schema_version":"v1","package_name":"` + strings.Repeat("a", 100) + `","package_version":"1.2.3-rc.1+` + strings.Repeat("b", 200) + `"}`,
	}
	for _, codes := range []string{"[]", "[0]", "[1.0]", "[1e0]", "[0.5]", "[1.00000000000000000000000001]", "[2147483647,2147483648,-2147483648,-2147483649,1e300,-0]", `["0",true,null]`, "{}"} {
		for _, rest := range []string{
			`"name":"a","path":"b","arguments":[],"on_host":true,"idempotence":false,"upgrade_step":false`,
			`"name":"","path":"","arguments":["a",1],"on_host":1,"idempotence":null,"upgrade_step":"x","env":{"A":"b","C":1,"":{}},"timeout":"1","later":1,"~1":2`,
			`"name":"ä","path":"语","env":null,"timeout":"1.5h2ms","requires_interrupt":0`,
		} {
			out = append(out, `{"modes":{"post-interrupt-check":[{"returncodes":`+codes+`,`+rest+`},null]}}`)
		}
	}
	return out
}

// TestSchemaLikeALibrary: the keywords that our schemas use mean what JSON Schema says.
func TestSchemaLikeALibrary(t *testing.T) {
	broken := map[string]bool{}
	for _, text := range badDocuments(t) {
		compareWithLibrary(t, []byte(text))
		root, _ := readTree([]byte(text), &findings{})
		for _, b := range brokenBySchema(root) {
			broken[b[strings.LastIndex(b, " ")+1:]] = true
		}
	}
	for _, keyword := range []string{"required", "additionalProperties", "type", "const", "minItems", "minimum", "minLength", "pattern"} {
		if !broken[keyword] {
			t.Errorf("no document breaks %s", keyword)
		}
	}
	for _, content := range published(t) {
		compareWithLibrary(t, content)
	}
}

// FuzzSchema: no document is judged otherwise than by a library.
func FuzzSchema(f *testing.F) {
	for _, text := range badDocuments(f) {
		f.Add([]byte(text))
	}
	for _, content := range published(f) {
		f.Add(content)
	}
	f.Fuzz(compareWithLibrary)
}
