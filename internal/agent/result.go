// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"io/fs"
	"os"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// foretell leaves a result as soon as the agent is told to stop: what follows may be cut short by SIGKILL. A run that has
// ended keeps its own.
func (a *Agent) foretell() {
	a.leaving.Lock()
	defer a.leaving.Unlock()
	if a.left {
		return
	}
	a.leave(pack.Message{
		Agent: a.Version, Package: a.Resource.Package, Version: a.Resource.Version, Mode: a.Mode,
		Outcome: pack.Stopped.Outcome(), Class: pack.Stopped, Reason: errStopped.Error() + " and had not ended when it was killed",
	})
}

// leave writes the result where the kubelet looks for it. Outside a container there is no such file, and none is made
// unless one was asked for.
func (a *Agent) leave(m pack.Message) {
	name, flags := a.MessageFile, os.O_WRONLY|os.O_CREATE|os.O_TRUNC
	if name == "" {
		name, flags = pack.MessageFile, os.O_WRONLY|os.O_TRUNC
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		if a.MessageFile != "" || !errors.Is(err, fs.ErrNotExist) {
			a.Log.Warn("the result could not be left behind", "error", err)
		}
		return
	}
	_, err = f.Write(m.Encode())
	if err = errors.Join(err, f.Close()); err != nil {
		a.Log.Warn("the result could not be left behind", "error", err)
	}
}
