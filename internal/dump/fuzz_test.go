// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/memory"
)

// FuzzRead reads dumps of strangers: it never panics, needs memory in proportion to the file, and what was read can be written.
func FuzzRead(f *testing.F) {
	empty, err := New(nil, time.Unix(0, 0))
	if err != nil {
		f.Fatal(err)
	}
	var out bytes.Buffer
	if err := empty.Write(&out); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	f.Add(append(bytes.Clone(out.Bytes()), "items:\n- {apiVersion: v1, kind: Node, metadata: {name: n1}}\n- {apiVersion: skyhook.nvidia.com/v1alpha1, kind: Skyhook, metadata: {name: demo}}\n"...))
	f.Add([]byte("a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		memory.Check(t, 64<<20+1024*len(text), func() {
			c, err := Read(bytes.NewReader(text))
			if err != nil {
				return
			}
			if err := c.Write(io.Discard); err != nil {
				t.Error(err)
			}
		})
	})
}
