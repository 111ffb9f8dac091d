// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		fault Fault
		want  string
	}{
		{Fault{Status: 500}, ""},
		{Fault{Delay: Duration(time.Second), Hangup: After}, ""},
		{Fault{}, "a fault needs a delay, a status, a hangup or a skew"},
		{Fault{Status: 200}, "status 200: it must be an HTTP error, 400 to 599"},
		{Fault{Status: 500, Hangup: Before}, "status and hangup exclude each other: who hangs up answers nothing"},
		{Fault{Hangup: "later"}, `hangup "later": it must be before or after`},
		{Fault{Status: 500, Chance: 1.5}, "chance 1.5: it must be between 0 and 1"},
		{Fault{Status: 500, Times: -1}, "times -1: it must not be negative"},
		{Fault{Delay: Duration(-time.Second)}, "delay -1s: it must not be negative"},
		{Fault{Status: 500, Path: "("}, `path "(" is no regular expression`},
	} {
		err := c.fault.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: the error is %v, want %q", c.fault, err, c.want)
		}
	}
}

// A set with an invalid fault leaves the active faults unchanged.
func TestReplace(t *testing.T) {
	var s Set
	if err := s.Replace([]Fault{{Status: 500}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Replace([]Fault{{Status: 503}, {}}); err == nil || !strings.HasPrefix(err.Error(), "fault 2: ") {
		t.Errorf("the error is %v", err)
	}
	if counts := s.Counts(); len(counts) != 1 || counts[0].Status != 500 {
		t.Errorf("in force are %+v", counts)
	}
}

// An added fault comes after the others, and does not reset their counts.
func TestAdd(t *testing.T) {
	var s Set
	if err := s.Replace([]Fault{{Status: 500, Times: 1}}); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequest(http.MethodGet, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.findFault("", r)
	if err := s.Add(Fault{Status: 503}); err != nil {
		t.Fatal(err)
	}
	if got, _ := s.findFault("", r); got.Status != 503 {
		t.Errorf("after the first fault has happened as often as it may, a request meets %+v", got)
	}
	if err := s.Add(Fault{}); err == nil {
		t.Error("a fault that does nothing was added")
	}
}

func TestPick(t *testing.T) {
	var s Set
	err := s.Replace([]Fault{
		{User: "^system:node:", Status: 500},
		{Method: "PATCH|PUT", Path: "^/api/v1/nodes/n1$", Status: 409, Times: 1},
		{Path: "fieldManager=me", Status: 503},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		user, method, path string
		want               int
	}{
		{"system:node:n1", "GET", "/version", 500},
		{"not:system:node:n1", "GET", "/version", 0},
		{"admin", "GET", "/api/v1/nodes/n1", 0},
		{"admin", "PATCH", "/api/v1/nodes/n11", 0},
		{"admin", "PATCH", "/api/v1/nodes/n1", 409},
		{"admin", "PATCH", "/api/v1/nodes/n1", 0},
		{"admin", "PATCH", "/api/v1/nodes/n2?fieldManager=me", 503},
	} {
		r, err := http.NewRequest(c.method, c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := s.findFault(c.user, r); got.Status != c.want {
			t.Errorf("%s %s by %s meets %d, want %d", c.method, c.path, c.user, got.Status, c.want)
		}
	}
	var happened []int
	for _, count := range s.Counts() {
		happened = append(happened, count.Happened)
	}
	if len(happened) != 3 || happened[0] != 1 || happened[1] != 1 || happened[2] != 1 {
		t.Errorf("they happened %v times", happened)
	}
}

// The bound is eight standard deviations wide, so that only a defect exceeds it.
func TestChance(t *testing.T) {
	var s Set
	if err := s.Replace([]Fault{{Status: 500, Chance: 0.3}}); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequest(http.MethodGet, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	const n = 10000
	for range n {
		s.findFault("", r)
	}
	if share := float64(s.Counts()[0].Happened) / n; math.Abs(share-0.3) > 8*math.Sqrt(0.3*0.7/n) {
		t.Errorf("with a chance of 0.3 it happened to %.3f of all requests", share)
	}
}

func TestWritten(t *testing.T) {
	want := Fault{Path: "/pods", Delay: Duration(1500 * time.Millisecond), Chance: 0.5}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != `{"path":"/pods","chance":0.5,"delay":"1.5s"}` {
		t.Errorf("it is written as %s", text)
	}
	var got Fault
	if err := json.Unmarshal(text, &got); err != nil || got != want {
		t.Errorf("it is read as %+v, %v", got, err)
	}
	if err := json.Unmarshal([]byte(`{"delay":"2"}`), &got); err == nil || !strings.Contains(err.Error(), "write a number and a unit") {
		t.Errorf("the error about a delay without a unit is %v", err)
	}
}

// TestSkip: a fault lets requests pass first, each fault counts for itself, and one that ended makes way for the next.
func TestSkip(t *testing.T) {
	var s Set
	if err := s.Replace([]Fault{{Method: "PATCH", Skip: 2, Times: 1, Hangup: After}, {Method: "PATCH", Skip: 2, Hangup: Before}}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, method := range []string{"PATCH", "GET", "PATCH", "PATCH", "GET", "PATCH", "PATCH"} {
		r, err := http.NewRequest(method, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		fault, _ := s.findFault("", r)
		got = append(got, fault.Hangup)
	}
	if want := ",,,after,,before,before"; strings.Join(got, ",") != want {
		t.Errorf("the requests met %v, want %s", got, want)
	}
}
