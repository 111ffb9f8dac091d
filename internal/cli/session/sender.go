// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sender sends what commands write, as --dry-run says: a dry run of the client prints it instead. -v prints what is sent.
type sender struct {
	client.Client
	f *Factory
}

// Create creates an object.
func (s sender) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	raw, err := json.Marshal(o)
	if err != nil || s.isPrinted("create", o, raw) {
		return err
	}
	return s.Client.Create(ctx, o, options...)
}

// Delete deletes an object.
func (s sender) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	if s.isPrinted("delete", o, nil) {
		return nil
	}
	return s.Client.Delete(ctx, o, options...)
}

// Patch changes an object.
func (s sender) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	raw, err := patch.Data(o)
	if err != nil || s.isPrinted("patch", o, raw) {
		return err
	}
	return s.Client.Patch(ctx, o, patch, options...)
}

// Status is for writes of a status.
func (s sender) Status() client.SubResourceWriter { return statusSender{s.Client.Status(), s} }

type statusSender struct {
	client.SubResourceWriter
	sender sender
}

// Patch changes the status of an object.
func (s statusSender) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	raw, err := patch.Data(o)
	if err != nil || s.sender.isPrinted("patch the status of", o, raw) {
		return err
	}
	return s.SubResourceWriter.Patch(ctx, o, patch, options...)
}

// isPrinted prints a request, with -v or in a dry run of the client, and reports whether it is only printed.
func (s sender) isPrinted(verb string, o client.Object, content []byte) bool {
	name := cmp.Or(o.GetName(), o.GetGenerateName())
	if kind, err := s.GroupVersionKindFor(o); err == nil {
		name = strings.ToLower(kind.Kind) + "/" + name
	}
	if content != nil {
		name += ": " + string(content)
	}
	if s.f.DryRun && !s.f.ServerDryRun {
		fmt.Fprintf(s.f.ErrOut, "would %s %s\n", verb, name)
		return true
	}
	s.f.Note("%s %s", verb, name)
	return false
}
