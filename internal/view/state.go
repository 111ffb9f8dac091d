// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

// State is what a node does, in the words of the pages.
type State string

// The states, the most urgent first.
const (
	StateFailed    State = "failed"
	StateNotReady  State = "not-ready"
	StateRebooting State = "rebooting"
	StateDraining  State = "draining"
	StateWorking   State = "working"
	StateBlocked   State = "blocked"
	StateDrifted   State = "drifted"
	StateWaiting   State = "waiting"
	StatePaused    State = "paused"
	StateComplete  State = "complete"
	StateIdle      State = "idle"
)

// States has the sign of each state, because colour is never the only one, and its words.
var States = []struct {
	State       State
	Sign, Title string
	Meaning     string
}{
	{StateFailed, "×", "Failed", "a stage failed; it may be retried"},
	{StateNotReady, "!", "Not ready", "the kubelet does not report the node as ready"},
	{StateRebooting, "↻", "Rebooting", "a reboot of ours is in progress"},
	{StateDraining, "▾", "Draining", "pods must leave the node first"},
	{StateWorking, "▸", "Working", "stages run, or are about to"},
	{StateBlocked, "◆", "Blocked", "work cannot begin without somebody's help"},
	{StateDrifted, "≠", "Drifted", "it is complete, and is not any more as it was left"},
	{StateWaiting, "…", "Waiting", "work begins by itself"},
	{StatePaused, "‖", "Paused", "its rollout is paused or disabled"},
	{StateComplete, "✓", "Complete", "nothing is left to do"},
	{StateIdle, "·", "Not selected", "no rollout selects the node"},
}

// Sign is the character of a state.
func (s State) Sign() string { return States[s.rank()].Sign }

// Title is the state for people.
func (s State) Title() string { return States[s.rank()].Title }

// rank is the place of a state in order of urgency.
func (s State) rank() int {
	for i := range States {
		if States[i].State == s {
			return i
		}
	}
	return len(States) - 1
}

// IsMoreUrgent reports whether a state needs attention before another one.
func (s State) IsMoreUrgent(other State) bool { return s.rank() < other.rank() }
