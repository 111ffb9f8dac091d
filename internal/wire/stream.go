// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"io"
	"sync"
)

const (
	prefix  = 4         // bytes before each event that say how long it is
	room    = 8 << 10   // that a stream begins with
	largest = 16 << 20  // event that a client decodes
	hoarded = 256 << 10 // memory that a stream keeps between two events
)

// stream is the body of a watch with its events cut down, and without those that say nothing new. What it does not
// understand it gives as it came: an event that is something else, or what comes after something that is no event.
type stream struct {
	body  io.ReadCloser
	kind  kind
	again *again // nil to pass everything on

	came    []byte // from the body, and not looked at
	memory  []byte // where came lies
	ready   []byte // to be given
	cutDown []byte // where ready lies, if it was cut down
	scratch []byte
	foreign bool  // what comes is not made of events
	err     error // of the body
	closed  sync.Once
}

func newStream(body io.ReadCloser, k kind, a *again) *stream {
	return &stream{body: body, kind: k, again: a, memory: make([]byte, room)}
}

// Read gives what is ready, and waits for an event when nothing is.
func (s *stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(s.ready) == 0 {
		if s.next() {
			continue
		}
		if s.err != nil && len(s.came) == 0 {
			return 0, s.err
		}
		if s.foreign || s.err != nil {
			s.ready, s.came = s.came, nil
			if len(s.ready) == 0 {
				return s.body.Read(p)
			}
			continue
		}
		s.more()
	}
	n := copy(p, s.ready)
	s.ready = s.ready[n:]
	return n, nil
}

// Close ends the stream.
func (s *stream) Close() error {
	if s.again != nil {
		s.closed.Do(s.again.end)
	}
	return s.body.Close()
}

// next makes an event ready that came wholly.
func (s *stream) next() bool {
	if s.foreign || len(s.came) < prefix {
		return false
	}
	size := int64(binary.BigEndian.Uint32(s.came))
	if size > largest {
		s.foreign = true
		return false
	}
	if int64(len(s.came)) < prefix+size {
		return false
	}
	whole := s.came[:prefix+size]
	s.came = s.came[prefix+size:]
	s.ready = s.cut(whole)
	return true
}

// cut is an event, with its length, without what nobody reads; nothing when it says nothing new.
func (s *stream) cut(whole []byte) []byte {
	if cap(s.cutDown) > hoarded {
		s.cutDown, s.scratch = nil, nil
	}
	e, ok := s.kind.cut(whole[prefix:], &s.scratch)
	if !ok {
		if s.again != nil {
			s.again.lose()
		}
		return whole
	}
	if s.again != nil && !s.again.hear(string(e.kind), e.object) {
		return nil
	}
	s.cutDown = e.append(append(s.cutDown[:0], whole[:prefix]...))
	binary.BigEndian.PutUint32(s.cutDown, uint32(len(s.cutDown)-prefix))
	return s.cutDown
}

// more reads from the body once.
func (s *stream) more() {
	s.makeRoom()
	n, err := s.body.Read(s.memory[len(s.came):])
	s.came = s.memory[:len(s.came)+n]
	s.err = err
}

// makeRoom moves what came to the beginning of the memory, which is made large enough for the event.
func (s *stream) makeRoom() {
	need := prefix
	if len(s.came) >= prefix {
		need += int(binary.BigEndian.Uint32(s.came))
	}
	memory := s.memory
	switch {
	case need > len(memory):
		memory = make([]byte, max(need, 2*len(memory)))
	case need <= hoarded && len(memory) > 2*hoarded:
		memory = make([]byte, max(need, room))
	}
	copy(memory, s.came)
	s.came, s.memory = memory[:len(s.came)], memory
}
