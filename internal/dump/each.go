// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"errors"
	"runtime"
	"sync"
)

// forEach calls do for each index below many, on all processors.
func forEach(many int, do func(int) error) error {
	var group sync.WaitGroup
	errs := make([]error, min(many, runtime.GOMAXPROCS(0)))
	for w := range errs {
		group.Go(func() {
			for i := w; i < many && errs[w] == nil; i += len(errs) {
				errs[w] = do(i)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
