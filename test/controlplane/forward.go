// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"io"
	"net/http"
)

// BufferBody reads the body of a request before a proxy forwards it. Otherwise net/http closes the body when the answer begins, and
// the sender, which still looks for the end of it, closes the connection in the middle of the answer.
func BufferBody(r *http.Request) {
	if r.Body == nil {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		body = nil // the sender is gone; the server refuses what is incomplete
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
}
