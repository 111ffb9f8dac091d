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

// again knows what the last event about each object said, and which versions of it say the same. An event that says
// nothing new is not passed on: most are kubelets that say they are alive. The watch whose events these are may break
// off and go on where it was; one that begins anywhere else begins with nothing known.
type again struct {
	mu      sync.Mutex
	objects map[string]*said // by uid
	at      string           // the version of what was passed on last: a watch that asks for what came after it goes on here
	busy    bool             // a watch is on its way
	seed    maphash.Seed
}

// said is what an object was last said to be, in all of its versions from first to last.
type said struct {
	hash        uint64
	first, last uint64
}

func newAgain() *again { return &again{objects: map[string]*said{}, seed: maphash.MakeSeed()} }

// begin is called when a watch begins. It says no when there is one already: then only that one is known.
func (a *again) begin(query url.Values) bool {
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

func (a *again) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy = false
}

// hear takes an event, cut down, and tells whether it says something new. What is not understood is new, and nothing is
// known after it.
func (a *again) hear(kind string, object []byte) (news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, ok := a.read(object)
	switch {
	case ok && kind == "BOOKMARK":
	case !ok || o.uid == "":
		a.forget()
		return true
	case kind == "DELETED":
		delete(a.objects, o.uid)
	case kind == "ADDED" || kind == "MODIFIED":
		s := a.objects[o.uid]
		if s != nil && s.hash == o.hash && kind == "MODIFIED" {
			s.last = max(s.last, o.version)
			return false
		}
		a.objects[o.uid] = &said{hash: o.hash, first: o.version, last: o.version}
	default:
		a.forget()
		return true
	}
	a.at = strconv.FormatUint(o.version, 10)
	return true
}

// lose is called when something came that is no event of this kind.
func (a *again) lose() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget()
}

func (a *again) forget() {
	clear(a.objects)
	a.at = ""
}

// newest is the newest version that says what this one says.
func (a *again) newest(uid, version string) string {
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

// word is what an event says: of whom, in which version, and a hash of all the rest.
type word struct {
	uid           string
	version, hash uint64
}

func (a *again) read(object []byte) (word, bool) {
	meta, _, rest, ok := first(object, fieldMetadata)
	if !ok {
		return word{}, false
	}
	var h maphash.Hash
	h.SetSeed(a.seed)
	var uid, version []byte
	for len(meta) > 0 {
		number, t, size := protowire.ConsumeField(meta)
		if size < 0 {
			return word{}, false
		}
		field := meta[:size]
		meta = meta[size:]
		if t == protowire.BytesType && number == fieldVersion {
			version, _, _, _ = first(field, number)
			continue
		}
		if t == protowire.BytesType && number == fieldUID {
			uid, _, _, _ = first(field, number)
		}
		_, _ = h.Write(field)
	}
	_ = h.WriteByte(0) // begins no field: here the metadata ends
	_, _ = h.Write(rest)
	n, err := strconv.ParseUint(string(version), 10, 64)
	return word{uid: string(uid), version: n, hash: h.Sum64()}, err == nil
}
