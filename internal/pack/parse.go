// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Limits of config.json: bytes, values, and bytes of the path to a value. They bound the memory that its problems take.
const (
	maxConfig = 1 << 20
	maxValues = 20_000
	maxPath   = 1024
)

// ReadConfig reads config.json of a package, and no more of it than shows that it is too large.
func ReadConfig(pkg fs.FS) ([]byte, error) { return readAtMost(pkg, ConfigFile, maxConfig+1) }

// Parse reads config.json and checks everything that can be said without the
// package's files. The Config is as complete as the problems allow.
func Parse(content []byte) (Config, Problems) {
	found := &findings{file: ConfigFile}
	c := parse(content, found)
	return c, found.problems.removeRepeated()
}

func parse(content []byte, found *findings) Config {
	tree, ok := readTree(content, found)
	if !ok {
		return Config{}
	}
	root, ok := tree.(map[string]any)
	if !ok {
		found.fail("wrong-type", "$", fmt.Sprintf("it is %s, but must be an object", withArticle(jsonType(tree))), "wrap the package's description in { and }")
		return Config{}
	}
	if newer, is := root["schema_version"].(string); is && isNewerSchema(newer) {
		found.fail("schema-version", "$.schema_version",
			fmt.Sprintf("%s is newer than this agent, which knows v1", quoteValue(newer)), "use a newer agent, or write the package for v1")
		return Config{}
	}
	checkSchema(root, found)
	c := decodeConfig(root)
	checkRules(c, root, found)
	return c
}

// isNewerSchema says whether s is a version of the format after v1.
func isNewerSchema(s string) bool {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "v"), 10, 64)
	return strings.HasPrefix(s, "v") && err == nil && n > 1
}

// readTree is the document as generic values, with its numbers as written.
func readTree(content []byte, found *findings) (any, bool) {
	switch {
	case len(content) > maxConfig:
		found.fail("json-syntax", "", fmt.Sprintf("it has more than %d bytes", maxConfig), "move content into files of the package")
		return nil, false
	case bytes.HasPrefix(content, []byte("\xef\xbb\xbf")):
		found.fail("json-syntax", "", "it starts with a byte order mark", "save it as UTF-8 without a byte order mark")
		return nil, false
	case !utf8.Valid(content):
		found.fail("json-syntax", "", "it is not UTF-8 text", "save it as UTF-8")
		return nil, false
	}
	var raw json.RawMessage
	if err := json.Unmarshal(content, &raw); err != nil {
		where := ""
		if e := (*json.SyntaxError)(nil); errors.As(err, &e) {
			where = describePosition(content, e.Offset) + ": "
		}
		found.fail("json-syntax", "", "it is not JSON: "+where+err.Error(), "correct the text there; comments and commas after the last element are not allowed")
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.UseNumber()
	t := treeReader{dec: dec, found: found}
	tree := t.readValue("$")
	if t.isTooLarge {
		found.fail("json-syntax", "", fmt.Sprintf("it has more than %d values, or is nested too deeply", maxValues), "move content into files of the package")
	}
	return tree, !t.isTooLarge
}

// describePosition is where the byte before offset stands, as people count.
func describePosition(content []byte, offset int64) string {
	before := content[:min(int(offset), len(content))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len([]rune(string(before[bytes.LastIndexByte(before, '\n')+1:])))
	return fmt.Sprintf("line %d, column %d", line, max(column, 1))
}

// treeReader builds generic values from a document known to be JSON, and
// reports what the standard decoder is silent about.
type treeReader struct {
	dec    *json.Decoder
	found  *findings
	values int
	// isTooLarge ends the reading.
	isTooLarge bool
}

func (t *treeReader) readValue(at string) any {
	t.values++
	if t.isTooLarge = t.isTooLarge || t.values > maxValues || len(at) > maxPath; t.isTooLarge {
		return nil
	}
	tok, err := t.dec.Token()
	if err != nil {
		return nil
	}
	switch tok := tok.(type) {
	case json.Delim:
		if tok == '{' {
			return t.readObject(at)
		}
		return t.readArray(at)
	case json.Number:
		return t.readNumber(at, tok)
	default:
		return tok
	}
}

func (t *treeReader) readObject(at string) map[string]any {
	object := map[string]any{}
	for !t.isTooLarge && t.dec.More() {
		tok, err := t.dec.Token()
		if err != nil {
			return object
		}
		key, _ := tok.(string)
		if _, twice := object[key]; twice {
			t.found.warn("duplicate-key", at+pathMember(key), fmt.Sprintf("the key %s is there more than once; the last one counts", quoteValue(key)), "merge them into one")
		}
		object[key] = t.readValue(at + pathMember(key))
	}
	_, _ = t.dec.Token() // the closing brace
	return object
}

func (t *treeReader) readArray(at string) []any {
	list := []any{}
	for !t.isTooLarge && t.dec.More() {
		list = append(list, t.readValue(fmt.Sprintf("%s[%d]", at, len(list))))
	}
	_, _ = t.dec.Token() // the closing bracket
	return list
}

// readNumber refuses what would take a computer long to write out.
func (t *treeReader) readNumber(at string, n json.Number) any {
	const longest, largest = 32, 308
	exponent := 0
	if i := strings.IndexAny(string(n), "eE"); i >= 0 {
		e, err := strconv.Atoi(string(n[i+1:]))
		if err != nil {
			e = largest + 1
		}
		exponent = max(e, -e)
	}
	if len(n) > longest || exponent > largest {
		t.found.fail("number", at, fmt.Sprintf("the number %s is out of range", quoteValue(string(n))), "write a smaller number")
		return json.Number("0")
	}
	return n
}

// decodeConfig takes what has the right type and leaves the rest at zero, since
// the schema has reported it.
func decodeConfig(root map[string]any) Config {
	c := Config{
		SchemaVersion:       asString(root["schema_version"]),
		Name:                asString(root["package_name"]),
		Version:             asString(root["package_version"]),
		ExpectedConfigFiles: asStrings(root["expected_config_files"]),
		Privileges:          asStrings(root["privileges"]),
		Modes:               map[Mode][]Step{},
	}
	if b, ok := root["rollback"].(bool); ok {
		c.Rollback = &b
	}
	modes, _ := root["modes"].(map[string]any)
	for key, value := range modes {
		list, ok := value.([]any)
		m, known := ParseMode(key)
		if !ok || !known {
			continue
		}
		steps := make([]Step, len(list))
		for i, s := range list {
			steps[i] = decodeStep(s)
		}
		c.Modes[m] = steps
	}
	for key, value := range root {
		if _, named := rootKeys[key]; named {
			continue
		}
		if c.Extra == nil {
			c.Extra = map[string]json.RawMessage{}
		}
		c.Extra[key] = marshalCompact(value)
	}
	return c
}

func decodeStep(value any) Step {
	object, _ := value.(map[string]any)
	s := Step{
		Name:        asString(object["name"]),
		Path:        asString(object["path"]),
		Arguments:   asStrings(object["arguments"]),
		OnHost:      object["on_host"] != false,
		Idempotence: asBool(object["idempotence"]),
		UpgradeStep: asBool(object["upgrade_step"]),
		Timeout:     decodeTimeout(asString(object["timeout"])),
	}
	codes, _ := object["returncodes"].([]any)
	for _, code := range codes {
		n, _ := code.(json.Number)
		f, _ := n.Float64()
		s.ReturnCodes = append(s.ReturnCodes, int(f))
	}
	if env, ok := object["env"].(map[string]any); ok {
		s.Env = map[string]string{}
		for key, value := range env {
			s.Env[key] = asString(value)
		}
	}
	if b, ok := object["requires_interrupt"].(bool); ok {
		s.RequiresInterrupt = &b
	}
	return s
}

var timeSpan = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`) })

// decodeTimeout is a time span in whole milliseconds, zero when there is none or the
// schema refuses it, and negative when it is too short or too long to be one.
func decodeTimeout(s string) time.Duration {
	if !timeSpan().MatchString(s) {
		return 0
	}
	d, err := time.ParseDuration(s)
	if d = d.Truncate(time.Millisecond); err != nil || d <= 0 {
		return -1
	}
	return d
}

func asString(v any) string { s, _ := v.(string); return s }

func asBool(v any) bool { b, _ := v.(bool); return b }

// asStrings keeps the place of every element, so that problems name the right one.
func asStrings(v any) []string {
	list, ok := v.([]any)
	if !ok {
		return nil
	}
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = asString(e)
	}
	return out
}
