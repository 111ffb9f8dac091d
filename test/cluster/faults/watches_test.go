// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestCutWatches: a watch ends with an error for the user that is meant, and for no other.
func TestCutWatches(t *testing.T) {
	s := newEnvironment(t)
	ends := map[string]chan error{}
	for _, user := range []string{"operator", "kubelet"} {
		response, err := s.newClient(s.issueCertificate(t, s.authority, user)).Get(s.url + "/watch?watch=true")
		if err != nil {
			t.Fatal(err)
		}
		end := make(chan error, 1)
		ends[user] = end
		go func() {
			_, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			end <- err
		}()
	}
	if n := s.proxy.CutWatches(regexp.MustCompile("^operator$")); n != 1 {
		t.Errorf("%d watches were cut, want 1", n)
	}
	select {
	case err := <-ends["operator"]:
		if err == nil {
			t.Error("the watch ended as if the server had closed it")
		}
	case <-time.After(10 * time.Second):
		t.Error("the watch goes on")
	}
	select {
	case err := <-ends["kubelet"]:
		t.Errorf("the watch of another user ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if n := s.proxy.CutWatches(regexp.MustCompile("")); n != 1 {
		t.Errorf("then %d watches were open, want 1", n)
	}
}

// TestSkew: times in JSON move, in texts inside of it too, and nothing else changes.
func TestSkew(t *testing.T) {
	body := `{"a":"2026-11-23T07:00:00Z","b":"2026-11-23T07:00:00.500000Z","c":"{\"at\":\"2026-12-31T23:30:00Z\"}","d":"2026-99-99T07:00:00Z"}`
	want := `{"a":"2026-11-23T08:00:00Z","b":"2026-11-23T08:00:00.500000Z","c":"{\"at\":\"2027-01-01T00:30:00Z\"}","d":"2026-99-99T07:00:00Z"}`
	for contentType, want := range map[string]string{"application/strategic-merge-patch+json": want, "application/vnd.kubernetes.protobuf": body} {
		r, err := http.NewRequest(http.MethodPatch, "/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", contentType)
		if err := skewTimes(r, time.Hour); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r.Body)
		if err != nil || string(got) != want || r.ContentLength != int64(len(want)) {
			t.Errorf("%s: the body is %s, %v, of length %d", contentType, got, err, r.ContentLength)
		}
	}
}
