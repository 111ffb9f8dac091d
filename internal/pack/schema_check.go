// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// schemaNode is one schema, with the keywords that ours use. Libraries for all of JSON Schema parse its metaschemas at every start of a
// program, which takes longer than all that the agent does before the first step; a test compares this with one of them.
type schemaNode struct {
	Schema      string `json:"$schema"`
	ID          string `json:"$id"`
	Title       string `json:"title"`
	Description string `json:"description"`

	Ref                  string                 `json:"$ref"` // then nothing else counts
	Definitions          map[string]*schemaNode `json:"definitions"`
	Type                 string                 `json:"type"`
	Const                any                    `json:"const"` // a text
	Required             []string               `json:"required"`
	Properties           map[string]*schemaNode `json:"properties"`
	AdditionalProperties *schemaOrFalse         `json:"additionalProperties"`
	Items                *schemaNode            `json:"items"`
	MinItems             int                    `json:"minItems"`
	MinLength            int                    `json:"minLength"`
	MaxLength            int                    `json:"maxLength"` // 0 for no limit
	Minimum              json.Number            `json:"minimum"`
	Maximum              json.Number            `json:"maximum"`
	Pattern              string                 `json:"pattern"`

	target *schemaNode           // of Ref
	match  func() *regexp.Regexp // of Pattern
}

// schemaOrFalse is false, or a schema.
type schemaOrFalse struct{ *schemaNode }

// UnmarshalJSON reads either.
func (s *schemaOrFalse) UnmarshalJSON(content []byte) error {
	if string(content) == "false" {
		return nil
	}
	s.schemaNode = &schemaNode{}
	return json.Unmarshal(content, s.schemaNode)
}

// loadSchema reads the schemas at first use.
var loadSchema = sync.OnceValue(readSchemas)

func readSchemas() *schemaNode {
	documents := map[string]*schemaNode{}
	for i, name := range []string{rootSchema, stepSchema} {
		dec := json.NewDecoder(bytes.NewReader(Schemas()[i]))
		dec.DisallowUnknownFields() // a keyword that is not checked
		node := &schemaNode{}
		if err := dec.Decode(node); err != nil {
			panic(fmt.Sprintf("reading schema %s: %v", name, err)) // embedded
		}
		documents[name] = node
	}
	for _, node := range documents {
		node.link(node, documents)
	}
	return documents[rootSchema]
}

// link finds the targets of references.
func (n *schemaNode) link(document *schemaNode, documents map[string]*schemaNode) {
	if n == nil {
		return
	}
	n.match = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(n.Pattern) })
	if n.Ref != "" {
		if n.target = documents[n.Ref]; n.target == nil {
			n.target = document.Definitions[strings.TrimPrefix(n.Ref, "#/definitions/")]
		}
		if n.target == nil {
			panic("the schema refers to " + n.Ref) // embedded
		}
	}
	for _, nodes := range []map[string]*schemaNode{n.Definitions, n.Properties} {
		for _, node := range nodes {
			node.link(document, documents)
		}
	}
	n.Items.link(document, documents)
	if n.AdditionalProperties != nil {
		n.AdditionalProperties.link(document, documents)
	}
}

// schemaPlace is a place in the document: its JSON path and its keys.
type schemaPlace struct {
	at   string
	keys []string
}

func (p schemaPlace) member(key string) schemaPlace {
	return schemaPlace{p.at + pathMember(key), append(slices.Clone(p.keys), key)}
}

func (p schemaPlace) element(i int) schemaPlace {
	return schemaPlace{fmt.Sprintf("%s[%d]", p.at, i), append(slices.Clone(p.keys), strconv.Itoa(i))}
}

// check reports which rules the value breaks. A value of another type breaks no further rules.
func (n *schemaNode) check(p schemaPlace, value any, report func(p schemaPlace, keyword string, n *schemaNode, value any)) {
	if n.target != nil {
		n.target.check(p, value, report)
		return
	}
	if !n.hasType(value) {
		report(p, "type", n, value)
		return
	}
	if n.Const != nil && value != n.Const {
		report(p, "const", n, value)
	}
	switch v := value.(type) {
	case map[string]any:
		n.checkObject(p, v, report)
	case []any:
		if len(v) < n.MinItems {
			report(p, "minItems", n, value)
		}
		for i, element := range v {
			if n.Items != nil {
				n.Items.check(p.element(i), element, report)
			}
		}
	case string:
		length := utf8.RuneCountInString(v)
		switch {
		case length < n.MinLength:
			report(p, "minLength", n, value)
		case n.MaxLength > 0 && length > n.MaxLength, n.Pattern != "" && !n.match().MatchString(v):
			report(p, "pattern", n, value)
		}
	case json.Number:
		if n.Minimum != "" && parseRat(v).Cmp(parseRat(n.Minimum)) < 0 || n.Maximum != "" && parseRat(v).Cmp(parseRat(n.Maximum)) > 0 {
			report(p, "minimum", n, value)
		}
	}
}

func (n *schemaNode) checkObject(p schemaPlace, object map[string]any, report func(schemaPlace, string, *schemaNode, any)) {
	if len(missingKeys(n.Required, object)) > 0 {
		report(p, "required", n, object)
	}
	for key, value := range object {
		switch known := n.Properties[key]; {
		case known != nil:
			known.check(p.member(key), value, report)
		case n.AdditionalProperties != nil && n.AdditionalProperties.schemaNode != nil:
			n.AdditionalProperties.check(p.member(key), value, report)
		}
	}
	if n.AdditionalProperties != nil && n.AdditionalProperties.schemaNode == nil && len(unknownKeys(n.Properties, object)) > 0 {
		report(p, "additionalProperties", n, object)
	}
}

func (n *schemaNode) hasType(value any) bool {
	switch n.Type {
	case "":
		return true
	case "integer":
		number, isNumber := value.(json.Number)
		return isNumber && parseRat(number).IsInt()
	}
	return jsonType(value) == n.Type
}

// parseRat is the exact value of a number.
func parseRat(n json.Number) *big.Rat {
	r, ok := new(big.Rat).SetString(string(n))
	if !ok {
		return new(big.Rat)
	}
	return r
}
