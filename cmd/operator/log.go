// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/skyhook-k8s/skyhook/internal/options"
)

// newLogger makes the logger that the options describe.
func newLogger(o *options.Options, out io.Writer) (logr.Logger, error) {
	level, err := logLevel("log-level", "LOG_LEVEL", o.LogLevel)
	if err != nil {
		return logr.Logger{}, err
	}
	stack, err := logLevel("log-stack-trace-level", "LOG_STACK_TRACE_LEVEL", o.LogStackLevel)
	if err != nil {
		return logr.Logger{}, err
	}
	times, ok := timeEncoders[o.LogTimeEncoder]
	if !ok {
		return logr.Logger{}, fmt.Errorf("--log-time-encoder (LOG_TIME_ENCODER): %q is none of rfc3339, rfc3339nano, iso8601, millis, nanos and epoch", o.LogTimeEncoder)
	}
	encoding := []zap.EncoderConfigOption{func(c *zapcore.EncoderConfig) { c.EncodeTime = times }}
	encoder := zap.JSONEncoder(encoding...)
	switch o.LogEncoder {
	case "json":
	case "console":
		encoder = zap.ConsoleEncoder(encoding...)
	default:
		return logr.Logger{}, fmt.Errorf("--log-encoder (LOG_ENCODER): %q is neither json nor console", o.LogEncoder)
	}
	return zap.New(zap.WriteTo(out), encoder, zap.Level(level), zap.StacktraceLevel(stack)), nil
}

func logLevel(name, env, value string) (zapcore.Level, error) {
	l, err := zapcore.ParseLevel(value)
	if err != nil {
		return 0, fmt.Errorf("--%s (%s): %q is none of debug, info, warn, error and panic", name, env, value)
	}
	return l, nil
}

var timeEncoders = map[string]zapcore.TimeEncoder{
	"rfc3339":     zapcore.RFC3339TimeEncoder,
	"rfc3339nano": zapcore.RFC3339NanoTimeEncoder,
	"iso8601":     zapcore.ISO8601TimeEncoder,
	"millis":      zapcore.EpochMillisTimeEncoder,
	"nanos":       zapcore.EpochNanosTimeEncoder,
	"epoch":       zapcore.EpochTimeEncoder,
}
