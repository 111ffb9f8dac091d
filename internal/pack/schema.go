// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

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
	// schemaBase is where the schemas would be; nothing is ever fetched.
	schemaBase = "skyhook://schemas/v1/"
)

var compiled = sync.OnceValue(compileSchemas)

func compileSchemas() *jsonschema.Schema {
	c := jsonschema.NewCompiler()
	for i, name := range []string{rootSchema, stepSchema} {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schemas()[i]))
		if err != nil {
			panic(fmt.Sprintf("reading schema %s: %v", name, err)) // embedded
		}
		// The id is relative and names the file for people; here the place does.
		delete(doc.(map[string]any), "$id")
		if err := c.AddResource(schemaBase+name, doc); err != nil {
			panic(fmt.Sprintf("adding schema %s: %v", name, err)) // embedded
		}
	}
	return c.MustCompile(schemaBase + rootSchema)
}

// checkSchema reports where the document differs from the schema.
func checkSchema(root map[string]any, found *findings) {
	err := compiled().Validate(root)
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
	at, value := locate(root, e.InstanceLocation)
	key := ""
	if n := len(e.InstanceLocation); n > 0 {
		key = e.InstanceLocation[n-1]
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, missing := range k.Missing {
			found.fail("missing-key", at, fmt.Sprintf("the key %q is missing", missing), "add "+examples[missing])
		}
	case *kind.AdditionalProperties:
		for _, unknown := range k.Properties {
			reportUnknown(at, unknown, e.InstanceLocation, found)
		}
	case *kind.Type:
		found.fail("wrong-type", at, fmt.Sprintf("it is %s, but must be %s", article(k.Got), article(k.Want[0])), typeFix(key, k.Got, k.Want[0]))
	case *kind.Const:
		found.fail("schema-version", at, fmt.Sprintf("%s is not a version of this format", compactQuote(value)), `write "schema_version": "v1"`)
	case *kind.MinItems:
		found.fail("return-codes", at, "it is empty, so the step could never succeed", `write "returncodes": [0]`)
	case *kind.Minimum, *kind.Maximum:
		found.fail("return-codes", at, fmt.Sprintf("%s is out of range", compactQuote(value)), "use exit codes from 0 to 255")
	case *kind.MinLength:
		found.fail("step-path", at, "it is empty", "name a file below "+StepDir)
	case *kind.Pattern, *kind.MaxLength:
		form := forms[key]
		found.fail(form.rule, at, fmt.Sprintf("%s is not %s", compactQuote(value), form.want), form.fix)
	default:
		found.fail("schema", at, "it breaks the schema's rule "+strings.Join(e.ErrorKind.KeywordPath(), "/"), "")
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
		found.fail("unknown-mode", at+member(unknown),
			fmt.Sprintf("the mode %s is not known%s", quote(unknown), didYouMean(unknown, known)), "use one of "+names(known))
		return
	}
	found.fail("unknown-step-key", at+member(unknown),
		fmt.Sprintf("the key %s of a step is not known%s", quote(unknown), didYouMean(unknown, stepKeys)), "remove it, or use one of "+names(stepKeys))
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

func typeFix(key, got, want string) string {
	switch key {
	case "on_host", "idempotence", "upgrade_step", "requires_interrupt":
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

// locate is the JSON path of a place in the document and what is there.
func locate(root any, loc []string) (string, any) {
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
			at, value = at+member(token), v[token]
		default:
			return at, nil
		}
	}
	return at, value
}

// member is a key as part of a JSON path.
func member(key string) string {
	plain := key != "" && len(key) <= 64
	for i, r := range key {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		plain = plain && (letter || i > 0 && r >= '0' && r <= '9')
	}
	if plain {
		return "." + key
	}
	q := quote(key)
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

func article(typeName string) string {
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
		return quote(s)
	}
	const most = 80
	if n, ok := v.(json.Number); ok {
		return n.String()
	}
	s := []rune(string(compact(v)))
	if len(s) > most {
		s = append(slices.Clone(s[:most]), '…')
	}
	return string(s)
}
