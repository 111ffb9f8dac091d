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
	"schema_version": 0, "package_name": 1, "package_version": 2, "expected_config_files": 3, "rollback": 4, "privileges": 5, "modes": 6,
}

// MarshalJSON writes the documented keys in the documented order, the modes in
// the order a package meets them, and then the keys of Extra by name.
func (c Config) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	writeMember(&b, "schema_version", c.SchemaVersion)
	writeMember(&b, "package_name", c.Name)
	writeMember(&b, "package_version", c.Version)
	writeMember(&b, "expected_config_files", nonNil(c.ExpectedConfigFiles))
	if c.Rollback != nil {
		writeMember(&b, "rollback", *c.Rollback)
	}
	if len(c.Privileges) > 0 {
		writeMember(&b, "privileges", c.Privileges)
	}
	var steps bytes.Buffer
	steps.WriteByte('{')
	for _, m := range modes {
		if s, ok := c.Modes[m]; ok {
			writeMember(&steps, string(m), nonNil(s))
		}
	}
	steps.WriteByte('}')
	writeMember(&b, "modes", json.RawMessage(steps.Bytes()))
	for _, key := range slices.Sorted(maps.Keys(c.Extra)) {
		if _, named := rootKeys[key]; !named {
			writeMember(&b, key, c.Extra[key])
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
	writeMember(&b, "name", s.Name)
	writeMember(&b, "path", s.Path)
	writeMember(&b, "arguments", nonNil(s.Arguments))
	writeMember(&b, "returncodes", nonNil(s.ReturnCodes))
	writeMember(&b, "on_host", s.OnHost)
	if s.Env != nil {
		writeMember(&b, "env", s.Env)
	}
	writeMember(&b, "idempotence", s.Idempotence)
	writeMember(&b, "upgrade_step", s.UpgradeStep)
	if s.Timeout != 0 {
		writeMember(&b, "timeout", s.Timeout.String())
	}
	if s.RequiresInterrupt != nil {
		writeMember(&b, "requires_interrupt", *s.RequiresInterrupt)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// writeMember writes one more key and its value into the object begun in b.
func writeMember(b *bytes.Buffer, key string, value any) {
	if b.Len() > 1 {
		b.WriteByte(',')
	}
	b.Write(marshalCompact(key))
	b.WriteByte(':')
	b.Write(marshalCompact(value))
}

// nonNil is never null in JSON.
func nonNil[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
