// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// statuses is an API server that answers with one status after the other; nil is an error.
type statuses struct {
	client.Client
	next []*nodeopv1.NodeOpStatus
}

func (s *statuses) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	status := s.next[0]
	s.next = s.next[1:]
	if status == nil {
		return errors.New("no route to host")
	}
	o.(*nodeopv1.NodeOp).Status = *status
	return nil
}

// TestNoLineTwice: what a node does is printed when it is new, also if it alternates, and so is what cannot be read. A node that a check
// skipped does not read as completed.
func TestNoLineTwice(t *testing.T) {
	of := func(phase nodeopv1.Phase, message string) *nodeopv1.NodeOpStatus {
		return &nodeopv1.NodeOpStatus{Phase: nodeopv1.PhaseRunning, NodeStatuses: map[string]nodeopv1.NodeStatus{"n1": {Phase: phase, Message: message}}}
	}
	ended := of(nodeopv1.PhaseCompleted, "Skipped by preflight: nothing to do")
	ended.Phase = nodeopv1.PhaseCompleted
	s := &statuses{next: []*nodeopv1.NodeOpStatus{of(nodeopv1.PhaseRunning, "a"), nil, nil, of(nodeopv1.PhaseRunning, "b"), of(nodeopv1.PhaseRunning, "a"), ended}}
	var out, said bytes.Buffer
	o := &nodeOpOptions{Factory: &session.Factory{Printer: &output.Printer{Out: &out, ErrOut: &said, Format: output.Table}}, client: s, nodeOp: &nodeopv1.NodeOp{}, keep: true}
	if err := o.waitForEnd(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := "n1  running: a\nwarning: no route to host; trying again\nn1  running: b\nn1  skipped: nothing to do\n"
	if got := said.String(); got != want {
		t.Errorf("it says\n%s\nwant\n%s", got, want)
	}
	if timeout := NewNodeRunCommand(o.Factory).Flag("timeout").DefValue; !strings.HasPrefix(timeout, "1h") {
		t.Errorf("it waits %s", timeout)
	}
}
