// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"io"
	"sync"
)

const (
	lengthPrefix  = 4         // bytes before each event, with its length
	initialBuffer = 8 << 10   // of a stream, at first
	maxEvent      = 16 << 20  // that a client decodes
	maxKeptBuffer = 256 << 10 // between two events
)

// stream is the body of a watch with filtered events, without those that change nothing. It passes on unchanged what it
// cannot parse: an event of another form, and everything after something that is not an event.
type stream struct {
	body  io.ReadCloser
	kind  kind
	dedup *deduplicator // nil to pass everything on

	buffered []byte // read from the body, not parsed yet
	buffer   []byte // the memory of buffered
	ready    []byte // to be returned
	cutDown  []byte // the memory of ready, if it was filtered
	scratch  []byte
	foreign  bool  // the rest of the body does not consist of events
	err      error // of the body
	closed   sync.Once
}

func newStream(body io.ReadCloser, k kind, a *deduplicator) *stream {
	return &stream{body: body, kind: k, dedup: a, buffer: make([]byte, initialBuffer)}
}

// Read returns what is ready, and waits for an event when nothing is.
func (s *stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(s.ready) == 0 {
		if s.nextEvent() {
			continue
		}
		if s.err != nil && len(s.buffered) == 0 {
			return 0, s.err
		}
		if s.foreign || s.err != nil {
			s.ready, s.buffered = s.buffered, nil
			if len(s.ready) == 0 {
				return s.body.Read(p)
			}
			continue
		}
		s.fill()
	}
	n := copy(p, s.ready)
	s.ready = s.ready[n:]
	return n, nil
}

// Close ends the stream.
func (s *stream) Close() error {
	if s.dedup != nil {
		s.closed.Do(s.dedup.end)
	}
	return s.body.Close()
}

// nextEvent makes the next event ready if it has arrived completely.
func (s *stream) nextEvent() bool {
	whole := s.nextFrame()
	if whole == nil {
		return false
	}
	e, isParsed, isNews := s.filter(whole)
	switch {
	case !isParsed:
		s.ready = whole
	case !isNews:
		s.ready = nil
	default:
		s.cutDown = e.append(append(s.cutDown[:0], whole[:lengthPrefix]...))
		binary.BigEndian.PutUint32(s.cutDown, uint32(len(s.cutDown)-lengthPrefix))
		s.ready = s.cutDown
	}
	return true
}

// nextFrame returns the next event, with its length, if it has arrived completely; nil if not.
func (s *stream) nextFrame() []byte {
	if s.foreign || len(s.buffered) < lengthPrefix {
		return nil
	}
	size := int64(binary.BigEndian.Uint32(s.buffered))
	if size > maxEvent {
		s.foreign = true
		return nil
	}
	if int64(len(s.buffered)) < lengthPrefix+size {
		return nil
	}
	whole := s.buffered[:lengthPrefix+size]
	s.buffered = s.buffered[lengthPrefix+size:]
	return whole
}

// filter takes an event apart and removes its unused fields, if it can be parsed. It also returns whether the event changes something.
func (s *stream) filter(whole []byte) (e event, isParsed, isNews bool) {
	if cap(s.cutDown) > maxKeptBuffer || cap(s.scratch) > maxKeptBuffer {
		s.cutDown, s.scratch = nil, nil
	}
	e, isParsed = s.kind.cut(whole[lengthPrefix:], &s.scratch)
	if !isParsed {
		if s.dedup != nil {
			s.dedup.reset()
		}
		return e, false, true
	}
	return e, true, s.dedup == nil || s.dedup.observe(string(e.kind), e.object)
}

// fill reads from the body once.
func (s *stream) fill() {
	s.growBuffer()
	n, err := s.body.Read(s.buffer[len(s.buffered):])
	s.buffered = s.buffer[:len(s.buffered)+n]
	s.err = err
}

// growBuffer moves the unparsed bytes to the beginning of the buffer, and makes the buffer large enough for the event.
func (s *stream) growBuffer() {
	need := lengthPrefix
	if len(s.buffered) >= lengthPrefix {
		need += int(binary.BigEndian.Uint32(s.buffered))
	}
	memory := s.buffer
	switch {
	case need > len(memory):
		memory = make([]byte, max(need, 2*len(memory)))
	case need <= maxKeptBuffer && len(memory) > 2*maxKeptBuffer:
		memory = make([]byte, max(need, initialBuffer))
	}
	copy(memory, s.buffered)
	s.buffered, s.buffer = memory[:len(s.buffered)], memory
}
