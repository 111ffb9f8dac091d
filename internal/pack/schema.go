// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

//go:embed schemas
var schemas embed.FS

// Schemas are the JSON Schemas of config.json, for editors and other programs:
// the document's first, then that of a step.
func Schemas() [][]byte {
	var out [][]byte
	for _, name := range []string{rootSchema, stepSchema} {
		content, err := schemas.ReadFile("schemas/v1/" + name)
		if err != nil {
			panic(err) // embedded
		}
		out = append(out, content)
	}
	return out
}

const (
	rootSchema = "skyhook-agent-schema.json"
	stepSchema = "step-schema.json"
	// schemaBase is where the schemas would be; nothing is ever fetched.
	schemaBase = "skyhook://schemas/v1/"
)

// compiledSchema is the schema ready for use, and its documents by their addresses, where a broken rule is looked up.
type compiledSchema struct {
	*jsonschema.Schema
	documents map[string]any
}

// loadSchema compiles the schemas at first use. Version 6 of the library parses the metaschemas of every draft in its
// initialiser: 21,300 allocations and 1.7 MB against 8,600 and 1.0 MB of version 5, at every start of the agent.
var loadSchema = sync.OnceValue(compileSchemas)

func compileSchemas() compiledSchema {
	c := jsonschema.NewCompiler()
	f := compiledSchema{documents: map[string]any{}}
	for i, name := range []string{rootSchema, stepSchema} {
		var doc map[string]any
		if err := json.Unmarshal(Schemas()[i], &doc); err != nil {
			panic(fmt.Sprintf("reading schema %s: %v", name, err)) // embedded
		}
		// The id is relative and names the file for people; here the place does.
		delete(doc, "$id")
		if err := c.AddResource(schemaBase+name, bytes.NewReader(marshalCompact(doc))); err != nil {
			panic(fmt.Sprintf("adding schema %s: %v", name, err)) // embedded
		}
		f.documents[schemaBase+name] = doc
	}
	f.Schema = c.MustCompile(schemaBase + rootSchema)
	return f
}

// schemaValue is what the schema says at a place of one of its documents, such as the list of required keys.
func (f compiledSchema) schemaValue(place string) any {
	document, pointer, _ := strings.Cut(place, "#")
	_, value := findValue(f.documents[document], splitPointer(pointer))
	return value
}

// splitPointer are the parts of a JSON pointer in the form the library writes.
func splitPointer(pointer string) []string {
	if pointer == "" {
		return nil
	}
	parts := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, part := range parts {
		if plain, err := url.PathUnescape(part); err == nil {
			part = plain
		}
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
	}
	return parts
}

// checkSchema reports where the document differs from the schema.
func checkSchema(root map[string]any, found *findings) {
	err := loadSchema().Validate(root)
	if err == nil {
		return
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		found.fail("schema", "$", err.Error(), "")
		return
	}
	reportSchema(root, invalid, found)
}

func reportSchema(root any, e *jsonschema.ValidationError, found *findings) {
	if len(e.Causes) > 0 {
		for _, cause := range e.Causes {
			reportSchema(root, cause, found)
		}
		return
	}
	loc := splitPointer(e.InstanceLocation)
	at, value := findValue(root, loc)
	key := ""
	if n := len(loc); n > 0 {
		key = loc[n-1]
	}
	rule := loadSchema().schemaValue(e.AbsoluteKeywordLocation)
	keyword := path.Base(e.AbsoluteKeywordLocation)
	switch keyword {
	case "required":
		for _, missing := range missingKeys(rule, value) {
			found.fail("missing-key", at, fmt.Sprintf("the key %q is missing", missing), "add "+examples[missing])
		}
	case "additionalProperties":
		known := loadSchema().schemaValue(strings.TrimSuffix(e.AbsoluteKeywordLocation, keyword) + "properties")
		for _, unknown := range unknownKeys(known, value) {
			reportUnknown(at, unknown, loc, found)
		}
	case "type":
		got, want := jsonType(value), asString(rule)
		found.fail("wrong-type", at, fmt.Sprintf("it is %s, but must be %s", withArticle(got), withArticle(want)), suggestTypeFix(key, got, want))
	case "const":
		found.fail("schema-version", at, fmt.Sprintf("%s is not a version of this format", compactQuote(value)), `write "schema_version": "v1"`)
	case "minItems":
		found.fail("return-codes", at, "it is empty, so the step could never succeed", `write "returncodes": [0]`)
	case "minimum", "maximum":
		found.fail("return-codes", at, fmt.Sprintf("%s is out of range", compactQuote(value)), "use exit codes from 0 to 255")
	case "minLength":
		found.fail("step-path", at, "it is empty", "name a file below "+StepDir)
	case "pattern", "maxLength":
		form := forms[key]
		found.fail(form.rule, at, fmt.Sprintf("%s is not %s", compactQuote(value), form.want), form.fix)
	default:
		found.fail("schema", at, "it breaks the schema's rule "+keyword, "")
	}
}

// missingKeys are the keys of a rule "required" that a value does not have.
func missingKeys(rule, value any) []string {
	object, _ := value.(map[string]any)
	required, _ := rule.([]any)
	var out []string
	for _, key := range required {
		if _, there := object[asString(key)]; !there {
			out = append(out, asString(key))
		}
	}
	return out
}

// unknownKeys are the keys of a value that are none of the properties, in their order.
func unknownKeys(properties, value any) []string {
	object, _ := value.(map[string]any)
	known, _ := properties.(map[string]any)
	var out []string
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if _, is := known[key]; !is {
			out = append(out, key)
		}
	}
	return out
}

// reportUnknown is about a key that the schema does not allow at loc.
func reportUnknown(at, unknown string, loc []string, found *findings) {
	if len(loc) == 1 && loc[0] == "modes" {
		var known []string
		for _, m := range modes {
			if m.HasSteps() {
				known = append(known, string(m))
			}
		}
		found.fail("unknown-mode", at+pathMember(unknown),
			fmt.Sprintf("the mode %s is not known%s", quoteValue(unknown), suggestWord(unknown, known)), "use one of "+joinWords(known))
		return
	}
	found.fail("unknown-step-key", at+pathMember(unknown),
		fmt.Sprintf("the key %s of a step is not known%s", quoteValue(unknown), suggestWord(unknown, stepKeys)), "remove it, or use one of "+joinWords(stepKeys))
}

var stepKeys = []string{"name", "path", "arguments", "returncodes", "on_host", "env", "idempotence", "upgrade_step", "timeout"}

// examples show what to add for a key that is missing.
var examples = map[string]string{
	"schema_version":        `"schema_version": "v1"`,
	"package_name":          `"package_name" with the name of the package`,
	"package_version":       `"package_version" with the image's tag, such as "1.0.0"`,
	"expected_config_files": `"expected_config_files": []`,
	"modes":                 `"modes" with the steps of the package`,
	"name":                  `"name" with a short name for the step`,
	"path":                  `"path" with a file below ` + StepDir,
	"arguments":             `"arguments": []`,
	"returncodes":           `"returncodes": [0]`,
	"on_host":               `"on_host": true`,
	"idempotence":           `"idempotence": true if the step may run again at any time, else false`,
	"upgrade_step":          `"upgrade_step": false`,
}

type form struct{ rule, want, fix string }

// forms say what a text with a pattern must look like.
var forms = map[string]form{
	"package_name":    {"package-name", "a package name", "use at most 100 letters, digits and . _ -, with a letter or digit at both ends"},
	"package_version": {"package-version", "a semantic version", "write three numbers without a leading v or leading zeros, such as 1.2.3 or 1.2.3-rc.1"},
	"name":            {"step-name", "a step name", "use letters, digits and _ - ."},
	"timeout":         {"timeout", "a time span", "write a number and a unit, such as 90s, 10m or 1h30m"},
}

func suggestTypeFix(key, got, want string) string {
	switch key {
	case "on_host", "idempotence", "upgrade_step", "requires_interrupt", "rollback":
		return "write true or false without quotes"
	case "returncodes":
		return `write "returncodes": [0]`
	case "env":
		if got == "null" {
			return "remove the key, or write {}"
		}
		return `write names and texts such as {"NAME": "value"}`
	case "arguments", "expected_config_files":
		return `write a list of texts such as ["a", "b"], or []`
	case "timeout":
		return forms["timeout"].fix
	}
	if _, ok := ParseMode(key); ok {
		return "write a list of steps, or []"
	}
	switch want {
	case "string":
		return "write a text in quotes"
	case "integer":
		return "write a whole number without quotes"
	case "array":
		return "write a list in [ and ]"
	}
	return "write names and values in { and }"
}

// findValue is the JSON path of a place in the document and what is there.
func findValue(root any, loc []string) (string, any) {
	at, value := "$", root
	for _, token := range loc {
		switch v := value.(type) {
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(v) {
				return at, nil
			}
			at, value = fmt.Sprintf("%s[%d]", at, i), v[i]
		case map[string]any:
			at, value = at+pathMember(token), v[token]
		default:
			return at, nil
		}
	}
	return at, value
}

// pathMember is a key as part of a JSON path.
func pathMember(key string) string {
	plain := key != "" && len(key) <= 64
	for i, r := range key {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		plain = plain && (letter || i > 0 && r >= '0' && r <= '9')
	}
	if plain {
		return "." + key
	}
	q := quoteValue(key)
	return "['" + strings.NewReplacer(`\"`, `"`, `'`, `\'`).Replace(q[1:len(q)-1]) + "']"
}

func jsonType(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	default:
		return "number"
	}
}

func withArticle(typeName string) string {
	switch typeName {
	case "null":
		return "null"
	case "array":
		return "a list"
	case "object", "integer":
		return "an " + typeName
	}
	return "a " + typeName
}

func compactQuote(v any) string {
	if s, ok := v.(string); ok {
		return quoteValue(s)
	}
	const most = 80
	if n, ok := v.(json.Number); ok {
		return n.String()
	}
	s := []rune(string(marshalCompact(v)))
	if len(s) > most {
		s = append(slices.Clone(s[:most]), '…')
	}
	return string(s)
}
