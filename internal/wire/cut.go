// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// A watch sends WatchEvents: type (1) and object (2), which is a RawExtension: raw (1). That is the magic and a
// runtime.Unknown: typeMeta (1), with apiVersion (1) and kind (2), the object (2), and how it is encoded (3, 4).
const magic = "k8s\x00"

// event is what is in one event of a watch.
type event struct {
	kind   []byte // its type
	head   []byte // the whole field of the type
	meta   []byte // the whole field of the typeMeta
	object []byte
	tail   []byte // what comes after the object
}

// cut removes unused fields from an event. It returns false when it cannot parse all of it. scratch is memory that the
// event uses.
func (k kind) cut(frame []byte, scratch *[]byte) (event, bool) {
	e, ok := k.open(frame)
	if !ok {
		return e, false
	}
	e.object, ok = k.kept.cut((*scratch)[:0], e.object)
	*scratch = e.object
	return e, ok
}

// append encodes an event.
func (e event) append(dst []byte) []byte {
	unknown := len(magic) + len(e.meta) + fieldSize(len(e.object)) + len(e.tail)
	dst = append(dst, e.head...)
	dst = appendHeader(dst, 2, fieldSize(unknown))
	dst = appendHeader(dst, 1, unknown)
	dst = append(dst, magic...)
	dst = append(dst, e.meta...)
	dst = append(appendHeader(dst, 2, len(e.object)), e.object...)
	return append(dst, e.tail...)
}

// open takes an event apart, if it is about this kind and shaped as the API server shapes it.
func (k kind) open(frame []byte) (e event, ok bool) {
	var outer, raw []byte
	if e.kind, e.head, frame, ok = firstField(frame, 1); !ok {
		return e, false
	}
	if outer, _, frame, ok = firstField(frame, 2); !ok || len(frame) > 0 {
		return e, false
	}
	if raw, _, outer, ok = firstField(outer, 1); !ok || len(outer) > 0 {
		return e, false
	}
	if len(raw) < len(magic) || string(raw[:len(magic)]) != magic {
		return e, false
	}
	var meta []byte
	if meta, e.meta, raw, ok = firstField(raw[len(magic):], 1); !ok {
		return e, false
	}
	if e.object, _, e.tail, ok = firstField(raw, 2); !ok {
		return e, false
	}
	return e, k.matches(meta) && isPlain(e.tail)
}

// matches reports whether a typeMeta names this kind.
func (k kind) matches(meta []byte) bool {
	version, _, meta, ok := firstField(meta, 1)
	if !ok || string(version) != k.version {
		return false
	}
	name, _, meta, ok := firstField(meta, 2)
	return ok && string(name) == k.name && len(meta) == 0
}

// isPlain reports whether an object has no other encoding: contentEncoding and contentType are empty.
func isPlain(tail []byte) bool {
	for _, n := range []protowire.Number{3, 4} {
		if len(tail) == 0 {
			break
		}
		value, _, rest, ok := firstField(tail, n)
		if !ok || len(value) > 0 {
			return false
		}
		tail = rest
	}
	return len(tail) == 0
}

// firstField returns the first field of a message, if it has this number and a length: its content, the whole field, and the
// rest of the message.
func firstField(message []byte, number protowire.Number) (value, whole, rest []byte, ok bool) {
	n, t, tag := protowire.ConsumeTag(message)
	if tag < 0 || n != number || t != protowire.BytesType {
		return nil, nil, nil, false
	}
	value, size := protowire.ConsumeBytes(message[tag:])
	if size < 0 {
		return nil, nil, nil, false
	}
	return value, message[:tag+size], message[tag+size:], true
}

// cut appends the fields of a message that are kept. It returns false when the message cannot be parsed.
func (p part) cut(dst, message []byte) ([]byte, bool) {
	for len(message) > 0 {
		number, t, size := protowire.ConsumeField(message)
		if size < 0 {
			return dst, false
		}
		whole := message[:size]
		message = message[size:]
		of, stays := p[uint32(number)]
		switch {
		case !stays:
		case of == nil:
			dst = append(dst, whole...)
		case t != protowire.BytesType:
			return dst, false
		default:
			value, _, _, _ := firstField(whole, number)
			var ok bool
			if dst, ok = of.nest(dst, number, value); !ok {
				return dst, false
			}
		}
	}
	return dst, true
}

// nest appends a field that is a message itself.
func (p part) nest(dst []byte, number protowire.Number, message []byte) ([]byte, bool) {
	dst = protowire.AppendTag(dst, number, protowire.BytesType)
	at := len(dst)
	dst, ok := p.cut(dst, message)
	var length [10]byte // is known only now
	return slices.Insert(dst, at, protowire.AppendVarint(length[:0], uint64(len(dst)-at))...), ok
}

// appendHeader appends the tag and the length of a field. All numbers here are below 16: their tags are one byte.
func appendHeader(dst []byte, number protowire.Number, length int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, number, protowire.BytesType), uint64(length))
}

// fieldSize is the size of such a field.
func fieldSize(length int) int { return 1 + protowire.SizeBytes(length) }
