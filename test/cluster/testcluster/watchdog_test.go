// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// victim names the variable that turns this test binary into a program that hangs, with a cluster of that name tied to it.
const victim = "SKYHOOK_TEST_CLUSTER_VICTIM"

// TestVictim is the inside of TestTied.
func TestVictim(t *testing.T) {
	if os.Getenv(victim) == "" {
		t.Skip("runs only as the victim of TestTied")
	}
	if _, err := Up(context.Background(), Spec{Name: os.Getenv(victim), Simulated: 3, Tied: true}, os.Stderr); err != nil {
		t.Fatal(err)
	}
	fmt.Println("up")
	select {} // until killed
}

// A cluster that is tied to a program goes down when the program is killed, files included.
func TestTied(t *testing.T) {
	realClusters(t)
	name := named("tied")
	noTraces(t, name)
	program := exec.Command(os.Args[0], "-test.run=^TestVictim$")
	program.Env = append(os.Environ(), victim+"="+name)
	program.Stderr = os.Stderr
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	isUp := false
	for lines := bufio.NewScanner(out); !isUp && lines.Scan(); {
		isUp = lines.Text() == "up"
	}
	if _, err := Open(name); err != nil || !isUp {
		t.Errorf("the victim's cluster is up: %v; opening it: %v", isUp, err)
	}
	if err := program.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = program.Wait() // killed, as was intended
	err = pollUntil(context.Background(), "nothing is left of the cluster", stepTimeout, func(context.Context) (bool, string) {
		left := traces(t, name)
		return len(left) == 0, fmt.Sprint(left)
	})
	if err != nil {
		t.Error(err)
	}
}

// A program that takes its cluster down itself sends the watchdog away, who would else take down a later one of that name.
func TestTiedAndTakenDown(t *testing.T) {
	realClusters(t)
	name := named("tied")
	c, err := Up(context.Background(), Spec{Name: name, Simulated: 1, Tied: true}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Down(context.Background()); err != nil {
		t.Fatal(err)
	}
	if c.watchdog.cmd.ProcessState == nil || !c.watchdog.cmd.ProcessState.Success() {
		t.Errorf("the watchdog ended with %v", c.watchdog.cmd.ProcessState)
	}
	noTraces(t, name)
}
