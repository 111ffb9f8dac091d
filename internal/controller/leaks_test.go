// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// operatorLabel marks the goroutines of an operator under test, and all that they start.
const operatorLabel = "operator-under-test"

var operatorsStarted atomic.Int64

// runLabelled calls do so that its goroutines can be told from all others, and returns the name of that label.
func runLabelled(do func(context.Context)) (label string) {
	label = fmt.Sprintf("%d", operatorsStarted.Add(1))
	go pprof.Do(context.Background(), pprof.Labels(operatorLabel, label), do)
	return label
}

// checkLeaks fails if goroutines remain that an operator started which has ended. They get a moment to end.
func checkLeaks(t testing.TB, label string) {
	t.Helper()
	var left []string
	for range 100 {
		if left = listGoroutines(t, label); len(left) == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("the operator has ended and left %d goroutines:\n%s", len(left), strings.Join(left, "\n\n"))
}

// listGoroutines returns the stacks of the goroutines with a label, except those of connections that client-go keeps open for
// the whole process.
func listGoroutines(t testing.TB, label string) []string {
	t.Helper()
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		t.Fatal(err)
	}
	stacks := strings.Split(all.String(), "\n\n")
	mark := fmt.Sprintf("%q:%q", operatorLabel, label)
	return slices.DeleteFunc(stacks, func(stack string) bool {
		isConnection := strings.Contains(stack, "http2.(*ClientConn).readLoop") || strings.Contains(stack, "net/http.(*persistConn)")
		return isConnection || !strings.Contains(stack, mark)
	})
}

// TestLeaksAreFound: a goroutine that a goroutine of an operator started is found while it runs, and only then.
func TestLeaksAreFound(t *testing.T) {
	end, started := make(chan struct{}), make(chan struct{})
	label := runLabelled(func(context.Context) {
		go func() {
			close(started)
			<-end
		}()
	})
	<-started
	if left := listGoroutines(t, label); len(left) != 1 || !strings.Contains(left[0], "TestLeaksAreFound") {
		t.Errorf("found %q", left)
	}
	close(end)
	checkLeaks(t, label)
}
