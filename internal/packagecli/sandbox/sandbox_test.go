// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestReadSpec(t *testing.T) {
	s, err := ReadSpec([]byte("config: {a: one, b: two}\nchange: {a: other, b: null, c: new}\ninterrupt: {type: service, services: [cron]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.configAfterChange(); len(got) != 2 || got["a"] != "other" || got["c"] != "new" {
		t.Errorf("after the change the config is %v", got)
	}
	for text, want := range map[string]string{
		"":                           "",
		"confg: {}":                  `unknown field "confg"`,
		"config: [a]":                "cannot unmarshal",
		"interrupt: {type: restart}": `type "restart" is not one of reboot, service`,
		"interrupt: {}":              `type "" is not one of`,
		"interrupt: {type: service, services: [-x]}": "services: \"-x\" is not the name",
		"ignore: [var/cache]":                        `ignore: "var/cache" must be an absolute path`,
		"ignore: ['/var/[']":                         "syntax error in pattern",
		"host: {etc/motd: x}":                        `host: "etc/motd" must be an absolute path`,
		"host: {/etc/../shadow: x}":                  "in its shortest form",
		"ignore: ['/var/*/x', '/tmp/**']":            "",
	} {
		_, err := ReadSpec([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q gives %v, want %q", text, err, want)
		}
	}
}

func TestIgnores(t *testing.T) {
	s := Spec{Ignore: []string{"/var/cache/**", "/etc/*.bak", "/opt/*/log/**", "/service cron.service"}}
	for at, want := range map[string]bool{
		"/var/cache": true, "/var/cache/a/b": true, "/var/cached": false, "/var": false,
		"/etc/a.bak": true, "/etc/a.bak/b": false, "/etc/d/a.bak": false,
		"/opt/x/log/y": true, "/opt/x/lo": false, "/service cron.service": true, "/": false,
	} {
		if got := s.isIgnored(at); got != want {
			t.Errorf("%s is ignored: %v", at, got)
		}
	}
}

func TestTextIsBounded(t *testing.T) {
	r := Report{Package: "p", Version: "1.0.0", Host: "h", Stages: []Stage{{Name: "install"}}}
	for range 100 {
		r.Stages[0].Changes = append(r.Stages[0].Changes, Change{Path: "/x", Kind: added, What: "file", Diff: strings.Repeat("+line\n", 100)})
	}
	var b strings.Builder
	r.WriteText(&b, true)
	if n := strings.Count(b.String(), "\n"); n > 10+maxShownChanges*(maxShownLines+2) || !strings.Contains(b.String(), "… and 60 more") {
		t.Errorf("%d lines", n)
	}
}

// TestPage reads the example on the page for authors: it is a spec, and shows everything there is.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/packages-authoring.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml test.yaml\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) != 1 {
		t.Fatalf("%d examples, want one", len(blocks))
	}
	s, err := ReadSpec(blocks[0][1])
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Config) == 0 || len(s.Change) == 0 || len(s.Env) == 0 || len(s.Services) == 0 || len(s.Host) == 0 || s.Interrupt == nil || len(s.Ignore) == 0 {
		t.Errorf("something is missing on the page: %+v", s)
	}
}
