// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/memory"
)

// FuzzArchive reads archives of strangers: it never panics, and needs memory in proportion to the file.
func FuzzArchive(f *testing.F) {
	var small, sparse bytes.Buffer
	out := tar.NewWriter(&small)
	_ = out.WriteHeader(&tar.Header{Name: "index.json", Size: 2, Mode: 0o644})
	_, _ = out.Write([]byte("{}"))
	_ = out.Close()
	f.Add(small.Bytes())
	// A file of 1 GiB without content.
	record := func(name string, flag byte, content string) {
		block := make([]byte, 512)
		copy(block, name)
		copy(block[100:], "0000644\x000000000\x000000000\x00")
		copy(block[124:], octal(len(content)))
		copy(block[136:], "00000000000\x00        ")
		block[156] = flag
		copy(block[257:], "ustar\x0000")
		sum := 0
		for _, b := range block {
			sum += int(b)
		}
		copy(block[148:], octal(sum)[5:])
		sparse.Write(block)
		sparse.WriteString(content)
		sparse.Write(make([]byte, (512-len(content)%512)%512))
	}
	record("pax", tar.TypeXHeader, "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n30 GNU.sparse.name=index.json\n34 GNU.sparse.realsize=1073741824\n")
	record("index.json", tar.TypeReg, "0\n"+string(make([]byte, 510)))
	sparse.Write(make([]byte, 1024))
	f.Add(sparse.Bytes())
	f.Fuzz(func(t *testing.T, archive []byte) {
		memory.Check(t, 1<<20+64*len(archive), func() {
			images, err := ReadArchive(bytes.NewReader(archive))
			for _, one := range images {
				_, _ = one.Index.IndexManifest()
			}
			if err != nil && images != nil {
				t.Error("an archive that cannot be read has images")
			}
		})
	})
}

// octal is a number as a tar has it.
func octal(n int) string {
	out := []byte("00000000000\x00")
	for i := 10; i >= 0; i-- {
		out[i], n = byte('0'+n%8), n/8
	}
	return string(out)
}
