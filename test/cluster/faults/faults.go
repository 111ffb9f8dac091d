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

// Fault describes a fault and the requests that it affects. The first fault that matches a request is applied.
type Fault struct {
	User   string `json:"user,omitempty"`   // regular expression on the client's user name; empty: everybody
	Method string `json:"method,omitempty"` // regular expression on the HTTP method; empty: all
	Path   string `json:"path,omitempty"`   // regular expression on the path with its query; empty: all

	Chance float64 `json:"chance,omitempty"` // between 0 and 1; 0 stands for always
	Skip   int     `json:"skip,omitempty"`   // let so many requests pass first
	Times  int     `json:"times,omitempty"`  // ends after so many; 0: never

	Delay  Duration `json:"delay,omitempty"`  // wait this long first
	Status int      `json:"status,omitempty"` // answer with this status instead of asking the API server
	Skew   Duration `json:"skew,omitempty"`   // add this to each time in the body of the request, as if the client's clock were wrong
	Hangup string   `json:"hangup,omitempty"` // Before: without asking the API server; After: it did what was asked, nobody hears of it
}

// Duration is written as 1s or 300ms.
type Duration time.Duration

// MarshalText formats the duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText parses the duration.
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

// Check validates the fault.
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
	if f.Skip < 0 {
		wrong = append(wrong, fmt.Errorf("skip %d: it must not be negative", f.Skip))
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
	if f.Delay == 0 && f.Status == 0 && f.Hangup == "" && f.Skew == 0 {
		wrong = append(wrong, errors.New("a fault needs a delay, a status, a hangup or a skew"))
	}
	return errors.Join(wrong...)
}

// rule is an active fault.
type rule struct {
	Fault
	user, method, path *regexp.Regexp
	matched, happened  int
}

// Set is the active faults. Its zero value has none.
type Set struct {
	mu    sync.Mutex
	rules []*rule
}

// Replace replaces the active faults.
func (s *Set) Replace(faults []Fault) error {
	rules, err := compileRules(faults)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = rules
	return nil
}

// Add appends a fault, and keeps the counts of the others.
func (s *Set) Add(fault Fault) error {
	rules, err := compileRules([]Fault{fault})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, rules...)
	return nil
}

func compileRules(faults []Fault) ([]*rule, error) {
	rules := make([]*rule, 0, len(faults))
	for i, f := range faults {
		if err := f.Check(); err != nil {
			return nil, fmt.Errorf("fault %d: %w", i+1, err)
		}
		rules = append(rules, &rule{Fault: f, user: regexp.MustCompile(f.User), method: regexp.MustCompile(f.Method), path: regexp.MustCompile(f.Path)})
	}
	return rules, nil
}

// Count is an active fault and how often it was applied.
type Count struct {
	Fault
	Happened int `json:"happened"`
}

// Counts lists the active faults.
func (s *Set) Counts() []Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make([]Count, 0, len(s.rules))
	for _, r := range s.rules {
		counts = append(counts, Count{Fault: r.Fault, Happened: r.happened})
	}
	return counts
}

// findFault returns the fault to apply to a request of user, if any.
func (s *Set) findFault(user string, r *http.Request) (Fault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rule := range s.rules {
		if rule.Times > 0 && rule.happened >= rule.Times {
			continue
		}
		if !rule.user.MatchString(user) || !rule.method.MatchString(r.Method) || !rule.path.MatchString(r.URL.RequestURI()) {
			continue
		}
		rule.matched++
		if rule.matched <= rule.Skip {
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

// statusReason is the reason that Kubernetes uses for an HTTP status.
func statusReason(status int) string {
	words := map[int]string{
		http.StatusConflict: "Conflict", http.StatusNotFound: "NotFound", http.StatusForbidden: "Forbidden", http.StatusUnauthorized: "Unauthorized",
		http.StatusTooManyRequests: "TooManyRequests", http.StatusServiceUnavailable: "ServiceUnavailable", http.StatusGatewayTimeout: "Timeout",
		http.StatusInternalServerError: "InternalError", http.StatusGone: "Expired",
		http.StatusUnprocessableEntity: "Invalid",
	}
	if word, found := words[status]; found {
		return word
	}
	return strings.ReplaceAll(http.StatusText(status), " ", "")
}
