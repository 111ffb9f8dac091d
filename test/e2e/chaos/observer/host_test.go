// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestParseHost(t *testing.T) {
	got, err := ParseHost(`boots 3
starts 4
version chaos-kernel.driver 1.0.0
interrupt {"schema":1,"id":"a1","type":"reboot","state":"done","from":"b0","to":"b1"}
interrupt {"schema":1,"id":"a2","type":"service","state":"intended","units":[{"name":"x.service"}]}
record chaos-kernel {"schema": 1, "package": "driver", "installed": {"version": "1.0", "release": "1.0.0"}}
record chaos-settings {"schema": 1, "package": "extra", "installed": {"version": "uninstalled", "release": "1.0.0"}}
record chaos-settings {"schema": 1, "package": "base", "installed": {}}
end
`)
	if err != nil {
		t.Fatal(err)
	}
	if got.Boots != 3 || got.Starts != 4 || got.Versions["chaos-kernel.driver"] != "1.0.0" || len(got.Interrupts) != 2 ||
		!reflect.DeepEqual(got.Installed, map[string]string{"chaos-kernel.driver": "1.0.0"}) ||
		!reflect.DeepEqual(got.Interrupts[0], Interrupt{ID: "a1", Type: "reboot", State: "done", From: "b0", To: "b1"}) {
		t.Errorf("it was read as %+v", got)
	}
	for text, want := range map[string]string{
		"boots 3\n":          "it told only a part",
		"boots many\nend\n":  `reading "boots many"`,
		"interrupt {\nend\n": `reading "interrupt {"`,
		"bash: no\nend\n":    `unknown word "bash:"`,
	} {
		if _, err := ParseHost(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want %q", text, err, want)
		}
	}
}

func TestOnce(t *testing.T) {
	reboot := Interrupt{ID: "r", Type: "reboot", State: "done", From: "b0", To: "b1"}
	restart := Interrupt{ID: "s", Type: "service", State: "done"}
	false1 := reboot
	false1.To = "b0"
	for _, c := range []struct {
		name  string
		crash bool
		reads []Host
		rule  string
		text  string
	}{
		{"nothing happened", false, []Host{{Boots: 1, Starts: 1}}, "", ""},
		{"one of each", false, []Host{{Boots: 2, Starts: 3, Interrupts: []Interrupt{reboot, restart}}}, "", ""},
		{"a boot without a cause", false, []Host{{Boots: 2, Starts: 2}}, RuleOnce, "n1 booted 1 times after the first, for 0 reboots"},
		{"a crash", true, []Host{{Boots: 2, Starts: 2}}, "", ""},
		{"a reboot twice", false, []Host{{Boots: 3, Starts: 3, Interrupts: []Interrupt{reboot}}}, RuleOnce, "n1 booted 2 times after the first, for 1 reboots"},
		{"a restart twice", false, []Host{{Boots: 1, Starts: 3, Interrupts: []Interrupt{restart}}}, RuleOnce, "started the counted service 3 times, in 1 boots, for 1 restarts"},
		{"a record that was pruned", false, []Host{{Boots: 2, Starts: 2, Interrupts: []Interrupt{reboot}}, {Boots: 2, Starts: 2}}, "", ""},
		{"done without a boot", false, []Host{{Boots: 1, Starts: 1, Interrupts: []Interrupt{false1}}}, RuleOnce, "recorded as done without a boot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newObserver()
			if c.crash {
				o.ExpectBoot("n1")
			}
			for i, h := range c.reads {
				o.HostRead(at(i), "n1", nil, nil, h)
			}
			o.require(t, c.rule, c.text)
		})
	}
}

func TestRecord(t *testing.T) {
	state := func(version, stage, state string) map[string]string {
		return map[string]string{"skyhook.nvidia.com/nodeState_kernel": fmt.Sprintf(
			`{"driver|%[1]s":{"name":"driver","version":%[1]q,"image":"i","stage":%[2]q,"state":%[3]q}}`, version, stage, state)}
	}
	recorded := func(version, installed string) Host {
		h := Host{Boots: 1, Starts: 1, Versions: map[string]string{"kernel.driver": version}, Installed: map[string]string{}}
		if installed != "" {
			h.Installed["kernel.driver"] = installed
		}
		return h
	}
	host := func(version string) Host { return recorded(version, version) }
	atWork := func(status string) map[string]string {
		return map[string]string{"skyhook.nvidia.com/nodeState_compact": "{}", "skyhook.nvidia.com/status_compact": status}
	}
	ahead := Host{Boots: 1, Starts: 1, Installed: map[string]string{"compact.upper": "1.0.0"}}
	none := map[string]string{"skyhook.nvidia.com/nodeState_kernel": "{}"}
	for _, c := range []struct {
		name          string
		before, after map[string]string
		host          Host
		rule, text    string
	}{
		{"applied", state("1.0.0", "apply", "complete"), state("1.0.0", "apply", "complete"), host("1.0.0"), "", ""},
		{"applies", state("1.0.0", "apply", "in_progress"), state("1.0.0", "apply", "in_progress"), host(""), "", ""},
		{"later stage", state("1.1.0", "config", "erroring"), state("1.1.0", "config", "erroring"), host("1.1.0"), "", ""},
		{"changed while it was read", state("1.0.0", "config", "complete"), state("1.1.0", "upgrade", "in_progress"), host("1.1.0"), "", ""},
		{"uninstalls", state("1.0.0", "uninstall", "in_progress"), state("1.0.0", "uninstall", "in_progress"), host(""), "", ""},
		{"ahead", state("1.1.0", "config", "complete"), state("1.1.0", "config", "complete"), host("1.2.0"), "", ""},
		{"claimed and not done", state("1.0.0", "apply", "complete"), state("1.0.0", "apply", "complete"), recorded("", "1.0.0"), RuleRecord, `n1 records kernel.driver 1.0.0 at apply complete, and its script on the host has done ""`},
		{"another version", state("1.1.0", "config", "complete"), state("1.1.0", "config", "complete"), recorded("1.0.0", "1.1.0"), RuleRecord, `has done "1.0.0"`},
		{"not recorded by the agent", state("1.0.0", "apply", "complete"), state("1.0.0", "apply", "complete"), recorded("1.0.0", ""), RuleRecord, `the agent has recorded "" as installed`},
		{"the agent is ahead", state("1.1.0", "config", "complete"), state("1.1.0", "config", "complete"), recorded("1.1.0", "1.2.0"), "", ""},
		{"forgotten by the node", none, none, host("1.0.0"), RuleRecord, "the agent has recorded kernel.driver 1.0.0 as installed on n1, and the node records nothing of it"},
		{"in a compact pod", atWork("in_progress"), atWork("in_progress"), ahead, "", ""},
		{"forgotten after a compact pod", atWork("complete"), atWork("complete"), ahead, RuleRecord, "the agent has recorded compact.upper 1.0.0 as installed on n1"},
		{"gone from both", none, none, host(""), "", ""},
		{"unreadable", map[string]string{"skyhook.nvidia.com/nodeState_kernel": "{"}, map[string]string{"skyhook.nvidia.com/nodeState_kernel": "{"}, host(""), RuleRecord, "cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newObserver()
			o.Want("kernel", "driver", "1.2.0")
			o.HostRead(at(1), "n1", c.before, c.after, c.host)
			o.require(t, c.rule, c.text)
		})
	}
}
