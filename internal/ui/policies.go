// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"net/http"
	"time"
)

// Policies is the data behind the page of DeploymentPolicies. deployment-policy status -o json prints it.
type Policies struct {
	Now      time.Time `json:"now"`
	Policies []Policy  `json:"policies"`
}

// Policy is a DeploymentPolicy with its windows in the next two weeks.
type Policy struct {
	Name     string    `json:"name"`
	Scope    string    `json:"scope"`
	Paused   bool      `json:"paused,omitempty"`
	Users    []string  `json:"users"` // rollouts
	Windows  bool      `json:"windows"`
	TimeZone string    `json:"timeZone,omitempty"`
	Problem  string    `json:"problem,omitempty"` // why its windows cannot be used
	IsOpen   bool      `json:"open"`
	Next     time.Time `json:"nextChange,omitzero"` // when it opens or closes; zero if that is not in the two weeks
	Open     []Span    `json:"openSpans,omitempty"`
	Days     []Day     `json:"-"`
}

// Day is a day of the calendar, in the time zone of the policy.
type Day struct {
	Date  time.Time // its begin
	End   time.Time
	Open  []Span
	Marks []time.Time // every six hours
}

func (s *Server) servePolicies(w http.ResponseWriter, r *http.Request) {
	page := s.newScreen("policies", "Policies")
	data, err := s.pages.Policies(r.Context())
	if err != nil {
		s.serveError(w, r, err)
		return
	}
	page.JSON, page.Data = data, data
	write(w, r, http.StatusOK, page)
}

// newDayAxis returns the axis of a day.
func newDayAxis(d Day) plot { return plot{Progress: &Progress{}, from: d.Date, to: d.End} }

// Summary says when a window is open on a day.
func (d Day) Summary() string {
	text := ""
	for i, span := range d.Open {
		if i > 0 {
			text += ", "
		}
		to := span.To.In(d.Date.Location()).Format("15:04")
		if span.To.Equal(d.End) {
			to = "24:00"
		}
		text += span.From.In(d.Date.Location()).Format("15:04") + "–" + to
	}
	if text == "" {
		return "closed"
	}
	return text
}

// CalendarDays splits spans into days of a time zone.
func CalendarDays(from time.Time, days int, open []Span) []Day {
	out := make([]Day, days)
	year, month, day := from.Date()
	for i := range out {
		d := Day{
			Date: time.Date(year, month, day+i, 0, 0, 0, 0, from.Location()), End: time.Date(year, month, day+i+1, 0, 0, 0, 0, from.Location()),
		}
		for hour := 6; hour < 24; hour += 6 {
			d.Marks = append(d.Marks, time.Date(year, month, day+i, hour, 0, 0, 0, from.Location()))
		}
		for _, span := range open {
			part := span
			if part.From.Before(d.Date) {
				part.From = d.Date
			}
			if part.To.After(d.End) {
				part.To = d.End
			}
			if part.To.After(part.From) {
				d.Open = append(d.Open, part)
			}
		}
		out[i] = d
	}
	return out
}
