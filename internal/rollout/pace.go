// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "slices"

// UsesBatches reports whether the pace works in batches.
func (p Pace) UsesBatches() bool {
	return slices.Contains(batchPaces, p.Kind)
}

var batchPaces = []PaceKind{PaceFixed, PaceLinear, PaceExponential, PaceWhole}

// NextSize returns the size of the next batch in a group of this many targets by the strategy alone, without the limit
// of the group; 0 for as many as possible.
func (p Pace) NextSize(m Memory, total int) int {
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

// progress returns the share of a group that had an outcome at the end of the last batch, in percent, rounded down.
func progress(m Memory, total int) int {
	if total <= 0 {
		return 0
	}
	return 100 * (m.Completed + m.Failed) / total
}

// Tally counts the targets of a group.
type Tally struct {
	Total    int // targets
	Finished int
	Failures int // for good

	Members int // targets of the open batch
	Passed  int // of those, the ones that succeeded
	Lost    int // of those, the ones that failed for good
	Pending int // of those, the ones whose outcome is not final
}

// AfterBatch returns the memory after the open batch. Targets that left it without an outcome do not count; a batch of
// only such targets changes nothing.
func (m Memory) AfterBatch(p Pace, t Tally, epoch int64) Memory {
	m.Open, m.From, m.Gone = 0, epoch+1, 0
	ended := t.Passed + t.Lost
	if ended == 0 {
		return m
	}
	m.Completed, m.Failed, m.LastSize = t.Finished, t.Failures, ended
	m.LastFailed = 100*t.Passed/ended < p.PassPercent
	isFirst := m.Batch <= 1
	m.Batch++
	if !m.LastFailed {
		m.ConsecutiveFailures = 0
		return m
	}
	m.ConsecutiveFailures++
	m.Stopped = m.Stopped || p.IsStoppedBy(m, t.Total) || p.StopFirst && isFirst
	return m
}

// IsStoppedBy reports whether the failures in a memory stop the group.
func (p Pace) IsStoppedBy(m Memory, total int) bool {
	return p.StopAfter > 0 && m.ConsecutiveFailures >= p.StopAfter && progress(m, total) < p.SafetyLimit
}

// WithBatch returns the memory with a first batch. It is stored before any target is admitted.
func (m Memory) WithBatch(epoch int64) Memory {
	if m.From == 0 {
		m.From, m.Batch, m.Open, m.Gone = epoch+1, max(1, m.Batch), 0, 0
	}
	return m
}

// IsBlank reports whether the memory has no results of earlier batches.
func (m Memory) IsBlank() bool {
	return m.Batch <= 1 && m == Memory{Batch: m.Batch, From: m.From, For: m.For, Resumed: m.Resumed}
}

// Continued returns the memory of a group that continues.
func (m Memory) Continued() Memory {
	m.Stopped, m.StoppedBy, m.ConsecutiveFailures = false, "", 0
	return m
}

// WithoutBatches returns the memory without the results of earlier batches.
func (m Memory) WithoutBatches(epoch int64) Memory {
	return Memory{For: m.For, Resumed: m.Resumed}.WithBatch(epoch)
}
