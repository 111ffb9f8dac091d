// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "testing"

func TestNextSize(t *testing.T) {
	linear := Pace{Kind: PaceLinear, Initial: 4, Delta: 3, SafetyLimit: 50}
	exponential := Pace{Kind: PaceExponential, Initial: 2, Factor: 3, SafetyLimit: 50}
	for _, c := range []struct {
		name  string
		pace  Pace
		m     Memory
		total int
		want  int
	}{
		{"fixed, first", Pace{Kind: PaceFixed, Initial: 3}, Memory{}, 10, 3},
		{"fixed, later", Pace{Kind: PaceFixed, Initial: 3}, Memory{LastSize: 2, Completed: 5}, 10, 3},
		{"fixed, the rest", Pace{Kind: PaceFixed, Initial: 3}, Memory{LastSize: 3, Completed: 8, Failed: 1}, 10, 1},
		{"fixed, nothing is left: one is offered", Pace{Kind: PaceFixed, Initial: 3}, Memory{LastSize: 3, Completed: 10}, 10, 1},
		{"linear, first", linear, Memory{}, 20, 4},
		{"linear, passed", linear, Memory{LastSize: 4, Completed: 4}, 20, 7},
		{"linear, failed", linear, Memory{LastSize: 4, Completed: 3, Failed: 1, LastFailed: true}, 20, 1},
		{"linear, failed, never below one", linear, Memory{LastSize: 2, Completed: 3, Failed: 1, LastFailed: true}, 20, 1},
		{"linear, failed behind the safety limit", linear, Memory{LastSize: 4, Completed: 9, Failed: 1, LastFailed: true}, 20, 7},
		{"exponential, first", exponential, Memory{}, 20, 2},
		{"exponential, passed", exponential, Memory{LastSize: 2, Completed: 2}, 20, 6},
		{"exponential, failed, rounded down", exponential, Memory{LastSize: 5, Completed: 3, Failed: 2, LastFailed: true}, 20, 1},
		{"exponential, no more than there are", exponential, Memory{LastSize: 9, Completed: 9}, 20, 11},
		{"exponential, failed behind the safety limit", exponential, Memory{LastSize: 2, Completed: 9, Failed: 1, LastFailed: true}, 20, 6},
		{"whole", Pace{Kind: PaceWhole}, Memory{LastSize: 3}, 20, 0},
		{"no targets", linear, Memory{}, 0, 1},
		{"factor missing", Pace{Kind: PaceExponential, Initial: 1}, Memory{LastSize: 2, Completed: 2}, 20, 2},
	} {
		if got := c.pace.NextSize(c.m, c.total); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestAfterBatch(t *testing.T) {
	pace := Pace{Kind: PaceLinear, Initial: 4, Delta: 1, PassPercent: 100, SafetyLimit: 50, StopAfter: 2}
	for _, c := range []struct {
		name  string
		pace  Pace
		m     Memory
		tally Tally
		want  Memory
	}{
		{"passed", pace, Memory{Batch: 1, Open: 4, From: 1},
			Tally{Total: 20, Finished: 4, Passed: 4},
			Memory{Batch: 2, Completed: 4, LastSize: 4, From: 8}},
		{"one of four failed", pace, Memory{Batch: 1, Open: 4, From: 1},
			Tally{Total: 20, Finished: 3, Failures: 1, Passed: 3, Lost: 1},
			Memory{Batch: 2, Completed: 3, Failed: 1, LastSize: 4, LastFailed: true, ConsecutiveFailures: 1, From: 8}},
		{"another failed batch stops", pace, Memory{Batch: 2, Completed: 3, Failed: 1, LastSize: 4, LastFailed: true, ConsecutiveFailures: 1, Open: 3, From: 4},
			Tally{Total: 20, Finished: 5, Failures: 2, Passed: 2, Lost: 1},
			Memory{Batch: 3, Completed: 5, Failed: 2, LastSize: 3, LastFailed: true, ConsecutiveFailures: 2, Stopped: true, From: 8}},
		{"but not behind the safety limit", pace, Memory{Batch: 2, ConsecutiveFailures: 1, Open: 3, From: 4},
			Tally{Total: 20, Finished: 8, Failures: 2, Passed: 2, Lost: 1},
			Memory{Batch: 3, Completed: 8, Failed: 2, LastSize: 3, LastFailed: true, ConsecutiveFailures: 2, From: 8}},
		{"a passed batch forgives", pace, Memory{Batch: 2, Failed: 1, LastFailed: true, ConsecutiveFailures: 1, Open: 3, From: 4},
			Tally{Total: 20, Finished: 6, Failures: 1, Passed: 3},
			Memory{Batch: 3, Completed: 6, Failed: 1, LastSize: 3, From: 8}},
		{"stopped stays stopped", pace, Memory{Batch: 3, Stopped: true, Open: 1, From: 4},
			Tally{Total: 20, Finished: 6, Passed: 1},
			Memory{Batch: 4, Completed: 6, LastSize: 1, Stopped: true, From: 8}},
		{"no target has an outcome: nothing changes", pace, Memory{Batch: 3, LastSize: 2, ConsecutiveFailures: 1, Open: 1, From: 4},
			Tally{Total: 20, Finished: 6},
			Memory{Batch: 3, LastSize: 2, ConsecutiveFailures: 1, From: 8}},
		{"threshold, rounded down", Pace{Kind: PaceFixed, PassPercent: 67, SafetyLimit: 100}, Memory{Batch: 1, Open: 3, From: 1},
			Tally{Total: 20, Finished: 2, Failures: 1, Passed: 2, Lost: 1},
			Memory{Batch: 2, Completed: 2, Failed: 1, LastSize: 3, LastFailed: true, ConsecutiveFailures: 1, From: 8}},
	} {
		if got := c.m.AfterBatch(c.pace, c.tally, 7); got != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	for attempts, want := range []string{"10s", "10s", "20s", "40s", "1m20s", "2m40s", "5m0s", "5m0s"} {
		if got := Backoff(attempts).String(); got != want {
			t.Errorf("after %d attempts: %s, want %s", attempts, got, want)
		}
	}
	if got := Backoff(1 << 30).String(); got != "5m0s" {
		t.Errorf("after very many attempts: %s", got)
	}
}
