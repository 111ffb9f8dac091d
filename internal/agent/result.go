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

// leave writes the result down.
func (a *Agent) leave(m pack.Message) {
	if err := leaveBehind(a.MessageFile, m.Encode()); err != nil {
		a.Log.Warn("the result could not be left behind", "error", err)
	}
}

// leaveBehind writes a message where the kubelet looks for it. Outside a container there is no such file, and none is made
// unless one was asked for.
func leaveBehind(asked string, message []byte) error {
	name, flags := asked, os.O_WRONLY|os.O_CREATE|os.O_TRUNC
	if name == "" {
		name, flags = pack.MessageFile, os.O_WRONLY|os.O_TRUNC
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		if asked == "" && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	_, err = f.Write(message)
	return errors.Join(err, f.Close())
}
