// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package image

import "fmt"

// The most that is read of one archive, layout or image. What is small in an archive could fill the memory or a disk.
const (
	MaxBytes = 1 << 30
	MaxFiles = 100_000
)

// Budget counts what was read of an archive, layout or image.
type Budget struct {
	bytes int64
	files int
}

// Add counts files and bytes. It returns an error when they are too many.
func (b *Budget) Add(files int, bytes int64) error {
	b.files += files
	b.bytes += bytes
	switch {
	case b.bytes > MaxBytes:
		return fmt.Errorf("it has more than %d GiB, which is the most that is read", MaxBytes>>30)
	case b.files > MaxFiles:
		return fmt.Errorf("it has more than %d files, which is the most that is read", MaxFiles)
	}
	return nil
}

// Write counts bytes that were read.
func (b *Budget) Write(p []byte) (int, error) { return len(p), b.Add(0, int64(len(p))) }
