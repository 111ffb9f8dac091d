// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestRetryWebhooks: a write is repeated while a webhook refuses it that is not served, and for no other reason.
func TestRetryWebhooks(t *testing.T) {
	refused := apierrors.NewInternalError(errors.New(`failed calling webhook "v.nvidia.com": failed to call webhook`))
	for name, c := range map[string]struct {
		errs   []error // of one attempt after the other
		writes int
		want   error
	}{
		"success":        {[]error{nil}, 1, nil},
		"refused twice":  {[]error{refused, refused, nil}, 3, nil},
		"another reason": {[]error{refused, context.DeadlineExceeded}, 2, context.DeadlineExceeded},
	} {
		writes := 0
		err := retryWebhooks(context.Background(), func() error {
			writes++
			return c.errs[writes-1]
		})
		if writes != c.writes || !errors.Is(err, c.want) {
			t.Errorf("%s: %d writes, %v; want %d, %v", name, writes, err, c.writes, c.want)
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := retryWebhooks(ended, func() error { return refused }); !errors.Is(err, refused) {
		t.Errorf("after the end: %v", err)
	}
}
