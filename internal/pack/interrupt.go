// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// InterruptType is what an interrupt does to the host, by its name in the
// Skyhook resource. The agent's command line and its files on the host use
// AgentName.
type InterruptType string

// The interrupt types.
const (
	InterruptReboot             InterruptType = "reboot"
	InterruptService            InterruptType = "service"
	InterruptRestartAllServices InterruptType = "restartAllServices"
	InterruptNoop               InterruptType = "noop"
	// InterruptScript is known to agents only; it does nothing.
	InterruptScript InterruptType = "script"
)

var agentNames = []struct {
	kind InterruptType
	name string
}{
	{InterruptReboot, "node_restart"},
	{InterruptService, "service_restart"},
	{InterruptRestartAllServices, "restart_all_services"},
	{InterruptNoop, "no_op"},
	{InterruptScript, "script_interrupt"},
}

// AgentName is the type's name between operator and agent, and in the names of
// the files that record an interrupt. It is empty for an unknown type.
func (t InterruptType) AgentName() string {
	for _, row := range agentNames {
		if row.kind == t {
			return row.name
		}
	}
	return ""
}

// ParseInterruptType reads a name of either kind.
func ParseInterruptType(name string) (InterruptType, error) {
	var known []string
	for _, row := range agentNames {
		if name == row.name || name == string(row.kind) {
			return row.kind, nil
		}
		known = append(known, row.name, string(row.kind))
	}
	if name == "" {
		return "", &InterruptError{Field: "type", Reason: "it is missing: set it to one of " + joinWords(agentTypeNames())}
	}
	return "", &InterruptError{Field: "type", Reason: fmt.Sprintf("%s is not known%s: use one of %s", quoteValue(name), SuggestWord(name, known), joinWords(agentTypeNames()))}
}

func agentTypeNames() []string {
	var all []string
	for _, row := range agentNames {
		all = append(all, row.name)
	}
	return all
}

// Interrupt is what the agent's interrupt mode is asked to do.
type Interrupt struct {
	Type     InterruptType
	Services []string // for InterruptService; empty means a daemon-reload only
}

// InterruptError is interrupt data that cannot be understood.
type InterruptError struct {
	Field  string // empty for the data as a whole
	Reason string
	Err    error // the cause, if another package found it
}

// Error says which field cannot be used and why.
func (e *InterruptError) Error() string {
	if e.Field == "" {
		return "interrupt data: " + e.Reason
	}
	return "interrupt data: " + e.Field + ": " + e.Reason
}

// Unwrap is the cause.
func (e *InterruptError) Unwrap() error { return e.Err }

// Encode is the interrupt as the agent's command line carries it: base64 of
// JSON with the agent's names. Services are there for a service interrupt only,
// even when there are none: older agents stop at any other combination.
func (i Interrupt) Encode() string {
	wire := map[string]any{"type": i.Type.AgentName()}
	if i.Type == InterruptService {
		services := i.Services
		if services == nil {
			services = []string{}
		}
		wire["services"] = services
	}
	return base64.StdEncoding.EncodeToString(marshalCompact(wire))
}

// DecodeInterrupt reads what Encode wrote, and what other operators write: any
// base64 alphabet, padded or not, plain JSON, names of either kind, keys that
// are unknown or that the type does not need. Errors are *InterruptError.
func DecodeInterrupt(s string) (Interrupt, error) {
	raw, err := interruptJSON(strings.TrimSpace(s))
	if err != nil {
		return Interrupt{}, err
	}
	var wire map[string]json.RawMessage
	if err := json.Unmarshal(raw, &wire); err != nil {
		return Interrupt{}, &InterruptError{Reason: "it is not a JSON object: pass base64 of an object such as {\"type\": \"no_op\"}", Err: err}
	}
	var name *string
	if err := unmarshalIfSet(wire["type"], &name); err != nil {
		return Interrupt{}, &InterruptError{Field: "type", Reason: "it must be a string", Err: err}
	}
	if name == nil {
		name = new(string)
	}
	kind, err := ParseInterruptType(*name)
	if err != nil {
		return Interrupt{}, err
	}
	i := Interrupt{Type: kind}
	if kind != InterruptService {
		return i, nil
	}
	if err := unmarshalIfSet(wire["services"], &i.Services); err != nil {
		return Interrupt{}, &InterruptError{Field: "services", Reason: "it must be a list of service names", Err: err}
	}
	for n, service := range i.Services {
		if reason := InvalidServiceReason(service); reason != "" {
			return Interrupt{}, &InterruptError{Field: fmt.Sprintf("services[%d]", n), Reason: reason}
		}
	}
	i.Services = uniqueStrings(i.Services)
	return i, nil
}

func interruptJSON(s string) ([]byte, error) {
	if s == "" {
		return nil, &InterruptError{Reason: "there is none: pass base64 of an object such as {\"type\": \"no_op\"}"}
	}
	if strings.HasPrefix(s, "{") {
		return []byte(s), nil
	}
	alphabet := base64.RawStdEncoding
	if strings.ContainsAny(s, "-_") {
		alphabet = base64.RawURLEncoding
	}
	raw, err := alphabet.DecodeString(strings.TrimRight(s, "="))
	if err != nil {
		return nil, &InterruptError{Reason: "it is not base64: pass base64 of an object such as {\"type\": \"no_op\"}", Err: err}
	}
	return raw, nil
}

// unmarshalIfSet does nothing when the key is absent.
func unmarshalIfSet(raw json.RawMessage, v any) error {
	if raw == nil {
		return nil
	}
	return json.Unmarshal(raw, v)
}

// The longest name systemd knows, and its form. The length is no part of the expression: a bounded repetition is compiled
// into as many copies, a millisecond of every start of the agent.
const maxService = 255

var serviceName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]*$`) })

// InvalidServiceReason says why systemd cannot restart a unit of this name; it is "" for a valid name.
func InvalidServiceReason(name string) string {
	if name == "" {
		return "it is empty: name a systemd service such as containerd"
	}
	if len(name) > maxService || !serviceName().MatchString(name) {
		return quoteValue(name) + ` is not the name of a systemd service: use letters, digits and : - _ . \ @, not starting with -`
	}
	return ""
}

// uniqueStrings removes repetitions and keeps the order.
func uniqueStrings(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
