// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import "testing"

// TestIsLocal checks that responses are compressed, except from a server on this machine.
func TestIsLocal(t *testing.T) {
	for server, want := range map[string]bool{
		"https://127.0.0.1:6443": true, "https://[::1]:6443": true, "https://localhost:6443": true, "http://127.1.2.3": true,
		"https://10.0.0.1:6443": false, "https://api.example.org": false, "https://localhost.example.org": false, "api.example.org": false, "": false, ":%": false,
	} {
		if isLocal(server) != want {
			t.Errorf("%q: %v", server, !want)
		}
	}
}
