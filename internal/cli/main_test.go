// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/skyhook-k8s/skyhook/internal/cli"
	"github.com/skyhook-k8s/skyhook/test/controlplane"
)

// noSleepAtExit ends a plugin that was built with the race detector at once, not a second later. What it has detected is reported before.
const noSleepAtExit = "GORACE=atexit_sleep_ms=0"

// TestMain lets the scripts call this test binary as the plugin, and stops the API server that a test may have started.
func TestMain(m *testing.M) { testscript.Main(suite{m}, map[string]func(){"kubectl-skyhook": plugin}) }

func plugin() {
	os.Exit(cli.Run(context.Background(), cli.Line{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Version: "v0.9.0-test",
	}))
}

type suite struct{ m *testing.M }

var (
	startPlane sync.Once
	plane      *controlplane.Plane
	planeErr   error
)

// Run runs the tests.
func (s suite) Run() int {
	code := s.m.Run()
	if plane != nil {
		if err := plane.Stop(); err != nil {
			println(err.Error())
			return max(code, 1)
		}
	}
	return code
}

// server is an API server with our CRDs, started by the first test that needs one.
func server(t testing.TB) *controlplane.Plane {
	t.Helper()
	startPlane.Do(func() {
		plane, planeErr = controlplane.Start(context.Background(), controlplane.Options{CRDs: []string{"../../chart/files/crds"}})
	})
	if planeErr != nil {
		t.Fatal(planeErr)
	}
	return plane
}
