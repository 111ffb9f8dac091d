// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"hash/maphash"
	"net/url"
	"strconv"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of an object's metadata, which is the first of its own.
const (
	fieldMetadata = 1
	fieldUID      = 5
	fieldVersion  = 6
)

// deduplicator remembers a hash of the last event of each object, and which versions of the object are equal to it. An event
// that changes nothing is not passed on: most are heartbeats of kubelets. The watch may be interrupted and resume where it
// was; a watch that begins at another version starts with an empty state.
type deduplicator struct {
	mu      sync.Mutex
	objects map[string]*lastEvent // by uid
	at      string                // version of the last event that was passed on: a watch from this version resumes
	busy    bool                  // a watch is open
	seed    maphash.Seed
}

// lastEvent is the state of an object in all of its versions from first to last.
type lastEvent struct {
	hash        uint64
	first, last uint64
}

func newDeduplicator() *deduplicator {
	return &deduplicator{objects: map[string]*lastEvent{}, seed: maphash.MakeSeed()}
}

// begin is called when a watch begins. It returns false when there is one already: only that one is deduplicated.
func (a *deduplicator) begin(query url.Values) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.busy {
		return false
	}
	if from := query.Get("resourceVersion"); from == "" || from != a.at || query.Get("sendInitialEvents") == "true" {
		clear(a.objects)
		a.at = ""
	}
	a.busy = true
	return true
}

func (a *deduplicator) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy = false
}

// observe remembers a filtered event and reports whether it changes its object. An event that cannot be parsed counts
// as new and clears the state.
func (a *deduplicator) observe(kind string, object []byte) (news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, ok := a.parseObject(object)
	switch {
	case ok && kind == "BOOKMARK":
	case !ok || o.uid == "":
		a.clearAll()
		return true
	case kind == "DELETED":
		delete(a.objects, o.uid)
	case kind == "ADDED" || kind == "MODIFIED":
		s := a.objects[o.uid]
		if s != nil && s.hash == o.hash && kind == "MODIFIED" {
			s.last = max(s.last, o.version)
			return false
		}
		a.objects[o.uid] = &lastEvent{hash: o.hash, first: o.version, last: o.version}
	default:
		a.clearAll()
		return true
	}
	a.at = strconv.FormatUint(o.version, 10)
	return true
}

// reset is called when something other than an event of this kind arrives.
func (a *deduplicator) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clearAll()
}

func (a *deduplicator) clearAll() {
	clear(a.objects)
	a.at = ""
}

// newestVersion returns the newest version that is equal to this one.
func (a *deduplicator) newestVersion(uid, version string) string {
	asked, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return version
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.objects[uid]; s != nil && s.first <= asked && asked < s.last {
		return strconv.FormatUint(s.last, 10)
	}
	return version
}

// objectState is the identity and version of the object of an event, and a hash of all other fields.
type objectState struct {
	uid           string
	version, hash uint64
}

func (a *deduplicator) parseObject(object []byte) (objectState, bool) {
	meta, _, rest, ok := firstField(object, fieldMetadata)
	if !ok {
		return objectState{}, false
	}
	var h maphash.Hash
	h.SetSeed(a.seed)
	var uid, version []byte
	for len(meta) > 0 {
		number, t, size := protowire.ConsumeField(meta)
		if size < 0 {
			return objectState{}, false
		}
		field := meta[:size]
		meta = meta[size:]
		if t == protowire.BytesType && number == fieldVersion {
			version, _, _, _ = firstField(field, number)
			continue
		}
		if t == protowire.BytesType && number == fieldUID {
			uid, _, _, _ = firstField(field, number)
		}
		_, _ = h.Write(field)
	}
	_ = h.WriteByte(0) // no field begins with 0: it separates the metadata
	_, _ = h.Write(rest)
	n, err := strconv.ParseUint(string(version), 10, 64)
	return objectState{uid: string(uid), version: n, hash: h.Sum64()}, err == nil
}
