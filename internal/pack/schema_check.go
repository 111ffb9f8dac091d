// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// loadSchema compiles the schemas at first use.
var loadSchema = sync.OnceValue(compileSchema)

func compileSchema() *jsonschema.Schema {
	const base = "skyhook://schemas/v1/"
	c := jsonschema.NewCompiler()
	for i, name := range []string{rootSchema, stepSchema} {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schemas()[i]))
		if err != nil {
			panic(fmt.Sprintf("reading schema %s: %v", name, err)) // embedded
		}
		delete(document.(map[string]any), "$id") // it is relative, for people
		if err := c.AddResource(base+name, document); err != nil {
			panic(fmt.Sprintf("reading schema %s: %v", name, err)) // embedded
		}
	}
	return c.MustCompile(base + rootSchema)
}

// schemaPlace is a place in the document: its JSON path, its keys and what is there.
type schemaPlace struct {
	at    string
	keys  []string
	value any
}

func findPlace(root any, keys []string) schemaPlace {
	p := schemaPlace{"$", keys, root}
	for _, key := range keys {
		switch v := p.value.(type) {
		case []any:
			i, _ := strconv.Atoi(key) // by the library
			p.at, p.value = fmt.Sprintf("%s[%d]", p.at, i), v[i]
		case map[string]any:
			p.at, p.value = p.at+pathMember(key), v[key]
		}
	}
	return p
}

// checkSchema reports where the document differs from the schema.
func checkSchema(root map[string]any, found *findings) {
	var broken *jsonschema.ValidationError
	if !errors.As(loadSchema().Validate(root), &broken) {
		return
	}
	reported := map[string]bool{}
	var collect func(*jsonschema.ValidationError)
	collect = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			collect(cause)
		}
		if len(e.Causes) > 0 {
			return
		}
		p := findPlace(root, e.InstanceLocation)
		if rule := fmt.Sprintf("%s %s", p.at, keywordOf(e.ErrorKind)); !reported[rule] {
			reported[rule] = true
			reportBroken(p, e.ErrorKind, found)
		}
	}
	collect(broken)
}

// keywordOf is the keyword of the schema that is broken; the longest and the form of a text are one rule.
func keywordOf(broken jsonschema.ErrorKind) string {
	path := broken.KeywordPath()
	if keyword := path[len(path)-1]; keyword != "maxLength" {
		return keyword
	}
	return "pattern"
}
