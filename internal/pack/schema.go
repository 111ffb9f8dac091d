// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
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
)

// reportBroken is about a keyword of the schema that a value breaks.
func reportBroken(p schemaPlace, broken jsonschema.ErrorKind, found *findings) {
	key := ""
	if len(p.keys) > 0 {
		key = p.keys[len(p.keys)-1]
	}
	switch k := broken.(type) {
	case *kind.Required:
		for _, missing := range k.Missing {
			found.fail("missing-key", p.at, fmt.Sprintf("the key %q is missing", missing), "add "+examples[missing])
		}
	case *kind.AdditionalProperties:
		for _, unknown := range slices.Sorted(slices.Values(k.Properties)) {
			reportUnknown(p.at, unknown, p.keys, found)
		}
	case *kind.Type:
		got, want := jsonType(p.value), k.Want[0]
		found.fail("wrong-type", p.at, fmt.Sprintf("it is %s, but must be %s", withArticle(got), withArticle(want)), suggestTypeFix(key, got, want))
	case *kind.Const:
		found.fail("schema-version", p.at, fmt.Sprintf("%s is not a version of this format", compactQuote(p.value)), `write "schema_version": "v1"`)
	case *kind.MinItems:
		if key == "privileges" {
			found.fail("privileges", p.at, "it is empty", "name what the steps need, or remove it, which means full")
			return
		}
		found.fail("return-codes", p.at, "it is empty, so the step could never succeed", `write "returncodes": [0]`)
	case *kind.Minimum, *kind.Maximum:
		found.fail("return-codes", p.at, fmt.Sprintf("%s is out of range", compactQuote(p.value)), "use exit codes from 0 to 255")
	case *kind.MinLength:
		found.fail("step-path", p.at, "it is empty", "name a file below "+StepDir)
	case *kind.MaxLength, *kind.Pattern:
		form := forms[key]
		found.fail(form.rule, p.at, fmt.Sprintf("%s is not %s", compactQuote(p.value), form.want), form.fix)
	}
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
			fmt.Sprintf("the mode %s is not known%s", quoteValue(unknown), SuggestWord(unknown, known)), "use one of "+joinWords(known))
		return
	}
	found.fail("unknown-step-key", at+pathMember(unknown),
		fmt.Sprintf("the key %s of a step is not known%s", quoteValue(unknown), SuggestWord(unknown, stepKeys)), "remove it, or use one of "+joinWords(stepKeys))
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
	case "arguments", "expected_config_files", "privileges":
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
	return "['" + pathQuotes.Replace(q[1:len(q)-1]) + "']"
}

var pathQuotes = strings.NewReplacer(`\"`, `"`, `'`, `\'`)

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
