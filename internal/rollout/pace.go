// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "slices"

// usesBatches says that the pace works in batches.
func (p Pace) usesBatches() bool {
	return slices.Contains(batchPaces, p.Kind)
}

var batchPaces = []PaceKind{PaceFixed, PaceLinear, PaceExponential, PaceWhole}

// nextSize is what the strategy alone asks of the next batch in a group of so many targets; 0 without end. The limit of the
// group cuts it afterwards.
func (p Pace) nextSize(m Memory, total int) int {
	if p.Kind == PaceWhole {
		return 0
	}
	size := p.Initial
	if m.LastSize > 0 {
		size = p.sizeAfter(m, total)
	}
	rest := total - m.Completed - m.Failed
	return max(1, min(size, rest))
}

// sizeAfter returns the size of a batch from the outcome of the batch before it.
func (p Pace) sizeAfter(m Memory, total int) int {
	factor := max(1, p.Factor)
	shrinks := m.LastFailed && progress(m, total) < p.SafetyLimit
	switch p.Kind {
	case PaceLinear:
		if shrinks {
			return m.LastSize - p.Delta
		}
		return m.LastSize + p.Delta
	case PaceExponential:
		if shrinks {
			return m.LastSize / factor
		}
		return min(m.LastSize*factor, total)
	}
	return p.Initial
}

// progress is the share of a group that had ended at the last checkpoint, in percent, rounded down.
func progress(m Memory, total int) int {
	if total <= 0 {
		return 0
	}
	return 100 * (m.Completed + m.Failed) / total
}

// tally is how a group stands.
type tally struct {
	total    int // targets
	finished int
	failed   int // for good

	members int // targets of the open batch
	passed  int // of those, the ones that ended well
	lost    int // of those, the ones that failed for good
	pending int // of those, the ones whose outcome is not final
}

// afterBatch is the memory once the open batch has ended. Targets that left it without an outcome count for nothing; a batch
// of such targets only teaches nothing.
func (m Memory) afterBatch(p Pace, t tally, epoch int64) Memory {
	m.Open, m.From = 0, epoch+1
	ended := t.passed + t.lost
	if ended == 0 {
		return m
	}
	m.Completed, m.Failed, m.LastSize = t.finished, t.failed, ended
	m.LastFailed = 100*t.passed/ended < p.PassPercent
	m.Batch++
	if !m.LastFailed {
		m.ConsecutiveFailures = 0
		return m
	}
	m.ConsecutiveFailures++
	m.Stopped = m.Stopped || p.isStoppedBy(m, t.total)
	return m
}

// isStoppedBy says that so many failures stop the group.
func (p Pace) isStoppedBy(m Memory, total int) bool {
	return p.StopAfter > 0 && m.ConsecutiveFailures >= p.StopAfter && progress(m, total) < p.SafetyLimit
}

// withBatch is a memory that has a batch to count from. It is the first thing to be stored in a rollout.
func (m Memory) withBatch(epoch int64) Memory {
	if m.From == 0 {
		m.From, m.Batch, m.Open = epoch+1, max(1, m.Batch), 0
	}
	return m
}

// isBlank says that the memory holds nothing an earlier batch taught.
func (m Memory) isBlank() bool {
	return m.Batch <= 1 && m == Memory{Batch: m.Batch, From: m.From, For: m.For, Resumed: m.Resumed}
}

// reset is a memory of nothing but what the next batches are for.
func (m Memory) reset(epoch int64) Memory {
	return Memory{For: m.For, Resumed: m.Resumed}.withBatch(epoch)
}
