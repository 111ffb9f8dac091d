// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestPrivileges(t *testing.T) {
	for _, c := range []struct {
		p     Privileges
		class string
		dirs  []string
	}{
		{nil, "full", nil},
		{Privileges{"full"}, "full", nil},
		{Privileges{"/etc/sysctl.d"}, "files", []string{"/etc/sysctl.d"}},
		{Privileges{"/etc/b", "sysctl", "/etc", "/etcetera", "/etc"}, "sysctl", []string{"/etc", "/etc/b", "/etcetera"}},
		{Privileges{"services", "sysctl"}, "services", nil},
		{Privileges{"services", "reboot"}, "reboot", nil},
	} {
		if wrong, fix := c.p.FindProblem(); wrong != "" || fix != "" {
			t.Errorf("%q: %s", c.p, wrong)
		}
		if got := c.p.Class(); got != c.class || !slices.Equal(c.p.Dirs(), c.dirs) || c.p.IsFull() != (c.class == "full") {
			t.Errorf("%q is of class %s and writes %q", c.p, got, c.p.Dirs())
		}
	}
	if !slices.IsSortedFunc(privilegeClasses, CompareClasses) {
		t.Error("the classes are not in their order")
	}
}

func TestPrivilegesThatAreWrong(t *testing.T) {
	var many, long Privileges
	for i := range 17 {
		many = append(many, fmt.Sprintf("/d%d", i))
	}
	for i := range 5 {
		long = append(long, fmt.Sprintf("/%d%s", i, strings.Repeat("d", 90)))
	}
	for _, c := range []struct {
		p    Privileges
		want string
	}{
		{Privileges{"service"}, `"service" is no privilege (did you mean "services"?)`},
		{Privileges{"etc"}, `"etc" is no privilege`},
		{Privileges{""}, `"" is no privilege`},
		{Privileges{"/"}, `"/" is no directory that a package keeps`},
		{Privileges{"/etc/"}, `"/etc/" is not the shortest path`},
		{Privileges{"/etc/../proc"}, "is not the shortest path"},
		{Privileges{"/a:b"}, "has a blank, colon or comma"},
		{Privileges{"/proc/sys/vm"}, `"/proc/sys/vm" is no directory that a package keeps files in`},
		{Privileges{"/run/systemd"}, "is no directory that a package keeps"},
		{Privileges{"/tmp"}, "is no directory that a package keeps"},
		{Privileges{"full", "sysctl"}, "full is there beside others"},
		{many, "more than 16 entries"},
		{long, "or 400 characters"},
	} {
		if wrong, fix := c.p.FindProblem(); !strings.Contains(wrong, c.want) || fix == "" {
			t.Errorf("%q: %q, %q", c.p, wrong, fix)
		}
	}
	for text, want := range map[string]string{
		`[]`:              "$.privileges: it is empty",
		`"sysctl"`:        "$.privileges: it is a string, but must be a list",
		`["sysctl", 1]`:   "$.privileges[1]: it is a number, but must be a string",
		`["sysctl", "x"]`: `$.privileges: "x" is no privilege`,
	} {
		_, problems := Parse([]byte(`{"schema_version":"v1","package_name":"a","package_version":"1.0.0","expected_config_files":[],"modes":{},"privileges":` + text + `}`))
		if !slices.ContainsFunc(problems, func(p Problem) bool { return p.Severity == Error && strings.Contains(p.Path+": "+p.Message, want) }) {
			t.Errorf("%s: %v", text, problems)
		}
	}
}
