// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"encoding/base64"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInterruptEncode(t *testing.T) {
	for _, c := range []struct {
		in   Interrupt
		want string
	}{
		{Interrupt{Type: InterruptReboot}, `{"type":"node_restart"}`},
		{Interrupt{Type: InterruptReboot, Services: []string{"a"}}, `{"type":"node_restart"}`},
		{Interrupt{Type: InterruptService}, `{"services":[],"type":"service_restart"}`},
		{Interrupt{Type: InterruptService, Services: []string{"b", "a"}}, `{"services":["b","a"],"type":"service_restart"}`},
		{Interrupt{Type: InterruptRestartAllServices}, `{"type":"restart_all_services"}`},
		{Interrupt{Type: InterruptNoop}, `{"type":"no_op"}`},
		{Interrupt{Type: InterruptScript}, `{"type":"script_interrupt"}`},
	} {
		raw, err := base64.StdEncoding.DecodeString(c.in.Encode())
		if err != nil || string(raw) != c.want {
			t.Errorf("%+v is %s, %v; want %s", c.in, raw, err, c.want)
		}
	}
}

func TestInterruptDecode(t *testing.T) {
	std, raw, url := base64.StdEncoding, base64.RawStdEncoding, base64.RawURLEncoding
	service := func(s ...string) Interrupt { return Interrupt{Type: InterruptService, Services: s} }
	for _, c := range []struct {
		in   string
		want Interrupt
		err  string
	}{
		{std.EncodeToString([]byte(`{"type": "node_restart"}`)), Interrupt{Type: InterruptReboot}, ""},
		{raw.EncodeToString([]byte(`{"type": "no_op"}`)), Interrupt{Type: InterruptNoop}, ""},
		{url.EncodeToString([]byte(`{"type": "service_restart", "services": ["a>>>", "b"]}`)), Interrupt{}, `interrupt data: services[0]: "a>>>" is not the name of a systemd service: use letters, digits and : - _ . \ @, not starting with -`},
		{url.EncodeToString([]byte(`{"type":"service_restart","x":"???>>>","services":["a@1.service"]}`)), service("a@1.service"), ""},
		{"\n" + std.EncodeToString([]byte(`{"type": "restart_all_services"}`)) + "\n", Interrupt{Type: InterruptRestartAllServices}, ""},
		{std.EncodeToString([]byte(`{"type": "restartAllServices"}`)), Interrupt{Type: InterruptRestartAllServices}, ""},
		{std.EncodeToString([]byte(`{"type": "reboot", "services": ["a"]}`)), Interrupt{Type: InterruptReboot}, ""},
		{std.EncodeToString([]byte(`{"type": "no_op", "services": "ignored"}`)), Interrupt{Type: InterruptNoop}, ""},
		{std.EncodeToString([]byte(`{"type": "script_interrupt"}`)), Interrupt{Type: InterruptScript}, ""},
		{std.EncodeToString([]byte(`{"type": "service"}`)), service(), ""},
		{std.EncodeToString([]byte(`{"type": "service", "services": null}`)), service(), ""},
		{std.EncodeToString([]byte(`{"type": "service", "services": ["b", "a", "b"]}`)), service("b", "a"), ""},
		{`{"type": "noop"}`, Interrupt{Type: InterruptNoop}, ""},

		{"", Interrupt{}, `interrupt data: there is none: pass base64 of an object such as {"type": "no_op"}`},
		{"***", Interrupt{}, `interrupt data: it is not base64: pass base64 of an object such as {"type": "no_op"}`},
		{std.EncodeToString([]byte(`[1]`)), Interrupt{}, `interrupt data: it is not a JSON object: pass base64 of an object such as {"type": "no_op"}`},
		{std.EncodeToString([]byte("null")), Interrupt{}, `interrupt data: type: it is missing: set it to one of node_restart, service_restart, restart_all_services, no_op and script_interrupt`},
		{`{"type": 5}`, Interrupt{}, `interrupt data: type: it must be a string`},
		{`{"type": "rebot"}`, Interrupt{}, `interrupt data: type: "rebot" is not known (did you mean "reboot"?): use one of node_restart, service_restart, restart_all_services, no_op and script_interrupt`},
		{`{"type": "service", "services": "kubelet"}`, Interrupt{}, `interrupt data: services: it must be a list of service names`},
		{`{"type": "service", "services": ["kubelet", ""]}`, Interrupt{}, `interrupt data: services[1]: it is empty: name a systemd service such as containerd`},
		{`{"type": "service", "services": ["-Hhost"]}`, Interrupt{}, `interrupt data: services[0]: "-Hhost" is not the name of a systemd service: use letters, digits and : - _ . \ @, not starting with -`},
	} {
		got, err := DecodeInterrupt(c.in)
		if c.err == "" {
			if err != nil || !cmp.Equal(c.want, got) {
				t.Errorf("%q: %v %s", c.in, err, cmp.Diff(c.want, got))
			}
			continue
		}
		var typed *InterruptError
		if !errors.As(err, &typed) || err.Error() != c.err {
			t.Errorf("%q:\n got  %v\n want %s", c.in, err, c.err)
		}
	}
}

func TestInterruptTypes(t *testing.T) {
	for _, row := range agentNames {
		for _, name := range []string{row.name, string(row.kind)} {
			if got, err := ParseInterruptType(name); err != nil || got != row.kind || got.AgentName() != row.name {
				t.Errorf("%s is %s, %v", name, got, err)
			}
		}
	}
	if InterruptType("x").AgentName() != "" {
		t.Error("an unknown type has a name")
	}
}
