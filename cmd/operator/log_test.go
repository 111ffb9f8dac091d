// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/internal/options"
)

func TestLog(t *testing.T) {
	for _, c := range []struct{ level, encoder, times, want string }{
		{"info", "json", "rfc3339", `"msg":"hello"`},
		{"info", "console", "iso8601", "\thello\t"},
		{"error", "json", "epoch", ""},
	} {
		var out bytes.Buffer
		log, err := newLogger(&options.Options{ProcessSettings: options.ProcessSettings{LogLevel: c.level, LogEncoder: c.encoder, LogTimeEncoder: c.times, LogStackLevel: "panic"}}, &out)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("hello", "a", "b")
		if got := out.String(); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%+v: logged %q", c, got)
		}
	}
	for _, c := range []struct {
		o    options.Options
		want string
	}{
		{options.Options{ProcessSettings: options.ProcessSettings{LogLevel: "5", LogStackLevel: "warn", LogEncoder: "json", LogTimeEncoder: "epoch"}}, "--log-level (LOG_LEVEL)"},
		{options.Options{ProcessSettings: options.ProcessSettings{LogLevel: "info", LogStackLevel: "x", LogEncoder: "json", LogTimeEncoder: "epoch"}}, "--log-stack-trace-level (LOG_STACK_TRACE_LEVEL)"},
		{options.Options{ProcessSettings: options.ProcessSettings{LogLevel: "info", LogStackLevel: "warn", LogEncoder: "xml", LogTimeEncoder: "epoch"}}, "--log-encoder (LOG_ENCODER)"},
		{options.Options{ProcessSettings: options.ProcessSettings{LogLevel: "info", LogStackLevel: "warn", LogEncoder: "json", LogTimeEncoder: "noon"}}, "--log-time-encoder (LOG_TIME_ENCODER)"},
	} {
		if _, err := newLogger(&c.o, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: the error is %v", c.o, err)
		}
	}
}
