// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// The containers of a pod with several stages are started together, and each waits for the one before it. So the next stage begins
// when the one before ends, and not when the kubelet has seen that.

// awaitPrevious waits until the stage before this one has succeeded.
func (a *Agent) awaitPrevious(ctx context.Context) error {
	if a.PreviousFile == "" {
		return nil
	}
	isThere, err := exists(a.PreviousFile)
	if !isThere && err == nil {
		a.Log.Info("waiting for the stage before this one in the same pod", "agent", a.Version, "mode", a.Mode, "file", a.PreviousFile)
		err = awaitFile(ctx, a.PreviousFile)
	}
	switch {
	case errors.Is(err, fault.ErrStopped):
		return fmt.Errorf("%s was not begun, and nothing was changed on the host: %w", a.Mode, err)
	case err != nil:
		return fault.New(pack.RetryLater, "%s cannot be watched, so it is not known whether %s may begin: %w", pack.EnvPreviousFile, a.Mode, err)
	}
	return nil
}

// awaitFile waits until a file exists.
func awaitFile(ctx context.Context, name string) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	if err := watcher.Add(filepath.Dir(name)); err != nil {
		return err
	}
	for {
		if isThere, err := exists(name); isThere || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-watcher.Events:
		case err := <-watcher.Errors:
			return err
		}
	}
}

func exists(name string) (bool, error) {
	_, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// noteSuccess lets the stage after this one begin. The file outlives a power cut: a container that has succeeded does not run again.
func (a *Agent) noteSuccess() error {
	if a.SuccessFile == "" {
		return nil
	}
	if err := createDurably(a.SuccessFile); err != nil {
		return fault.New(pack.RetryLater, "%s cannot be created, so the next stage does not begin: %w", pack.EnvSuccessFile, err)
	}
	return nil
}

// createDurably creates an empty file, which is on the disk when this returns.
func createDurably(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
