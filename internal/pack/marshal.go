// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// rootKeys are the keys of the document that Config has fields for, in the
// order they are written.
var rootKeys = map[string]int{
	"schema_version": 0, "package_name": 1, "package_version": 2, "expected_config_files": 3, "modes": 4,
}

// MarshalJSON writes the documented keys in the documented order, the modes in
// the order a package meets them, and then the keys of Extra by name.
func (c Config) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	members(&b, "schema_version", c.SchemaVersion)
	members(&b, "package_name", c.Name)
	members(&b, "package_version", c.Version)
	members(&b, "expected_config_files", list(c.ExpectedConfigFiles))
	var steps bytes.Buffer
	steps.WriteByte('{')
	for _, m := range modes {
		if s, ok := c.Modes[m]; ok {
			members(&steps, string(m), list(s))
		}
	}
	steps.WriteByte('}')
	members(&b, "modes", json.RawMessage(steps.Bytes()))
	for _, key := range slices.Sorted(maps.Keys(c.Extra)) {
		if _, named := rootKeys[key]; !named {
			members(&b, key, c.Extra[key])
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// UnmarshalJSON reads what Parse reads; an *InvalidError names what is wrong.
func (c *Config) UnmarshalJSON(content []byte) error {
	parsed, problems := Parse(content)
	if err := problems.Err(); err != nil {
		return err
	}
	*c = parsed
	return nil
}

// MarshalJSON writes the keys in the documented order.
func (s Step) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	members(&b, "name", s.Name)
	members(&b, "path", s.Path)
	members(&b, "arguments", list(s.Arguments))
	members(&b, "returncodes", list(s.ReturnCodes))
	members(&b, "on_host", s.OnHost)
	if s.Env != nil {
		members(&b, "env", s.Env)
	}
	members(&b, "idempotence", s.Idempotence)
	members(&b, "upgrade_step", s.UpgradeStep)
	if s.Timeout != 0 {
		members(&b, "timeout", s.Timeout.String())
	}
	if s.RequiresInterrupt != nil {
		members(&b, "requires_interrupt", *s.RequiresInterrupt)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// members writes one more key and its value into the object begun in b.
func members(b *bytes.Buffer, key string, value any) {
	if b.Len() > 1 {
		b.WriteByte(',')
	}
	b.Write(compact(key))
	b.WriteByte(':')
	b.Write(compact(value))
}

// list is never null in JSON.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
