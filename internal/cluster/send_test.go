// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"testing"
)

// TestSendOrder plays the queue with one worker: what is due first is sent first, whatever was added first.
func TestSendOrder(t *testing.T) {
	q := newSendQueue(1)
	q.workers = 1 // this test
	add := func(kind workKind, names ...string) {
		var parts []*sending
		for _, name := range names {
			parts = append(parts, &sending{nodeWork: &nodeWork{kind: kind, node: name}})
		}
		q.add(nil, parts)
	}
	var order []string
	send := func(count int, hasMore bool) {
		for range count {
			s := q.take()
			order = append(order, s.node)
			q.end(s, hasMore)
		}
	}

	add(workStatus, "status of plan 1")
	add(workAdmission, "admission of plan 2")
	add(workChecks, "check of plan 3")
	add(workStages, "stage of plan 4")
	send(2, true) // both have a second part, due one plan later
	add(workStages, "stage of plan 5", "another of plan 5")
	for range 4 {
		q.plans++
	}
	add(workStages, "stage of plan 10")
	send(7, false)

	want := []string{
		"admission of plan 2", "stage of plan 4", // due with plan 4: the admission was added before
		"admission of plan 2", "stage of plan 4", // their second parts are due with plan 5, and were added first
		"stage of plan 5", "another of plan 5", "check of plan 3", "status of plan 1", "stage of plan 10",
	}
	if !slices.Equal(order, want) {
		t.Errorf("sent\n%q, want\n%q", order, want)
	}
	if q.take() != nil || q.workers != 0 {
		t.Error("the queue is not empty, or its worker did not end")
	}
}

// TestSendStatus: of eight workers two send what is only status, however much waits.
func TestSendStatus(t *testing.T) {
	q := newSendQueue(8)
	q.workers = 8 // this test
	for range 20 {
		q.add(nil, []*sending{{nodeWork: &nodeWork{kind: workStatus}}})
	}
	first, second := q.take(), q.take()
	if first == nil || second == nil || q.take() != nil {
		t.Fatal("not two workers send status")
	}
	if got := q.roomForStatus(25); got != 5 {
		t.Errorf("there is room for %d more of 25, and 20 wait or are sent", got)
	}
	q.end(first, false)
	if q.take() == nil {
		t.Error("the worker that ended one takes no other")
	}
}
