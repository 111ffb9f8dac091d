// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/binary"
	"io"
)

// WriteFramed writes each text after its length, so that different lists have different digests.
func WriteFramed(w io.Writer, texts ...string) {
	for _, text := range texts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(text)))
		_, _ = w.Write(n[:]) // a hash never fails
		_, _ = io.WriteString(w, text)
	}
}
