// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package faults stands between an API server and its clients and, when told to, is slow, refuses, hangs up before a
// request or after it was carried out. Everybody keeps their own identity: the proxy vouches for clients that present a
// certificate and passes tokens on.
package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"
)

// A Fault is what goes wrong, for which requests, how often. The first fault that fits a request happens to it.
type Fault struct {
	User   string `json:"user,omitempty"`   // regular expression on the client's user name; empty: everybody
	Method string `json:"method,omitempty"` // regular expression on the HTTP method; empty: all
	Path   string `json:"path,omitempty"`   // regular expression on the path with its query; empty: all

	Chance float64 `json:"chance,omitempty"` // between 0 and 1; 0 stands for always
	Times  int     `json:"times,omitempty"`  // ends after so many; 0: never

	Delay  Duration `json:"delay,omitempty"`  // wait this long first
	Status int      `json:"status,omitempty"` // answer with this status instead of asking the API server
	Hangup string   `json:"hangup,omitempty"` // Before: without asking the API server; After: it did what was asked, nobody hears of it
}

// Duration is written as 1s or 300ms.
type Duration time.Duration

// MarshalText writes the duration as people do.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads the duration as people write it.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("delay %q: write a number and a unit, such as 300ms or 2s", text)
	}
	*d = Duration(parsed)
	return nil
}

// When a connection is hung up.
const (
	Before = "before"
	After  = "after"
)

// Check finds what is wrong with a fault.
func (f Fault) Check() error {
	var wrong []error
	for _, field := range []struct{ name, expression string }{{"user", f.User}, {"method", f.Method}, {"path", f.Path}} {
		if _, err := regexp.Compile(field.expression); err != nil {
			wrong = append(wrong, fmt.Errorf("%s %q is no regular expression: %w", field.name, field.expression, err))
		}
	}
	if f.Chance < 0 || f.Chance > 1 {
		wrong = append(wrong, fmt.Errorf("chance %v: it must be between 0 and 1", f.Chance))
	}
	if f.Times < 0 {
		wrong = append(wrong, fmt.Errorf("times %d: it must not be negative", f.Times))
	}
	if f.Delay < 0 {
		wrong = append(wrong, fmt.Errorf("delay %s: it must not be negative", time.Duration(f.Delay)))
	}
	if f.Status != 0 && (f.Status < 400 || f.Status > 599) {
		wrong = append(wrong, fmt.Errorf("status %d: it must be an HTTP error, 400 to 599", f.Status))
	}
	if f.Hangup != "" && f.Hangup != Before && f.Hangup != After {
		wrong = append(wrong, fmt.Errorf("hangup %q: it must be %s or %s", f.Hangup, Before, After))
	}
	if f.Hangup != "" && f.Status != 0 {
		wrong = append(wrong, errors.New("status and hangup exclude each other: who hangs up answers nothing"))
	}
	if f.Delay == 0 && f.Status == 0 && f.Hangup == "" {
		wrong = append(wrong, errors.New("a fault needs a delay, a status or a hangup"))
	}
	return errors.Join(wrong...)
}

// A rule is a fault that is in force.
type rule struct {
	Fault
	user, method, path *regexp.Regexp
	happened           int
}

// Set is the faults in force. Its zero value has none.
type Set struct {
	mu    sync.Mutex
	rules []*rule
}

// Replace puts other faults in force, or none.
func (s *Set) Replace(faults []Fault) error {
	rules, err := compile(faults)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = rules
	return nil
}

// Add puts one more fault in force, after the others, which go on as they are.
func (s *Set) Add(fault Fault) error {
	rules, err := compile([]Fault{fault})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, rules...)
	return nil
}

func compile(faults []Fault) ([]*rule, error) {
	rules := make([]*rule, 0, len(faults))
	for i, f := range faults {
		if err := f.Check(); err != nil {
			return nil, fmt.Errorf("fault %d: %w", i+1, err)
		}
		rules = append(rules, &rule{Fault: f, user: regexp.MustCompile(f.User), method: regexp.MustCompile(f.Method), path: regexp.MustCompile(f.Path)})
	}
	return rules, nil
}

// A Count is a fault in force and how often it has happened.
type Count struct {
	Fault
	Happened int `json:"happened"`
}

// Counts lists the faults in force.
func (s *Set) Counts() []Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make([]Count, 0, len(s.rules))
	for _, r := range s.rules {
		counts = append(counts, Count{Fault: r.Fault, Happened: r.happened})
	}
	return counts
}

// pick returns the fault that happens to a request of user, if one does.
func (s *Set) pick(user string, r *http.Request) (Fault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rule := range s.rules {
		if rule.Times > 0 && rule.happened >= rule.Times {
			continue
		}
		if !rule.user.MatchString(user) || !rule.method.MatchString(r.Method) || !rule.path.MatchString(r.URL.RequestURI()) {
			continue
		}
		if rule.Chance > 0 && rand.Float64() >= rule.Chance {
			continue
		}
		rule.happened++
		return rule.Fault, true
	}
	return Fault{}, false
}

// reason is the word that Kubernetes uses for an HTTP status, so that clients understand it.
func reason(status int) string {
	words := map[int]string{
		http.StatusConflict: "Conflict", http.StatusNotFound: "NotFound", http.StatusForbidden: "Forbidden", http.StatusUnauthorized: "Unauthorized",
		http.StatusTooManyRequests: "TooManyRequests", http.StatusServiceUnavailable: "ServiceUnavailable", http.StatusGatewayTimeout: "Timeout",
		http.StatusInternalServerError: "InternalError", http.StatusGone: "Expired",
	}
	if word, found := words[status]; found {
		return word
	}
	return strings.ReplaceAll(http.StatusText(status), " ", "")
}
