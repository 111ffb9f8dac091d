// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// answerLimit is how long the API server may take until its answer begins.
const answerLimit = 30 * time.Second

// answering ends requests that are not answered. Watches, and logs that are followed, may have nothing to say for any time.
type answering struct {
	http.RoundTripper
	limit time.Duration
}

// RoundTrip sends a request.
func (t answering) RoundTrip(r *http.Request) (*http.Response, error) {
	if q := r.URL.Query(); q.Get("watch") == "true" || q.Get("follow") == "true" {
		return t.RoundTripper.RoundTrip(r)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	late := time.AfterFunc(t.limit, func() { cancel(fmt.Errorf("%s has not answered for %s", r.URL.Host, t.limit)) })
	answer, err := t.RoundTripper.RoundTrip(r.WithContext(ctx))
	if late.Stop(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	answer.Body = answerBody{answer.Body, cancel}
	return answer, nil
}

// answerBody ends its request when it is closed.
type answerBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b answerBody) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
