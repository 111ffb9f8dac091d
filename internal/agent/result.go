// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// writeInterimResult writes a result as soon as the agent is told to stop, because SIGKILL may follow. A run that has
// ended keeps its result.
func (a *Agent) writeInterimResult() {
	a.resultLock.Lock()
	defer a.resultLock.Unlock()
	if a.resultWritten {
		return
	}
	a.writeResult(pack.Message{
		Agent: a.Version, Package: a.Resource.Package, Version: a.Resource.Version, Mode: a.Mode,
		Outcome: pack.Stopped.Outcome(), Class: pack.Stopped, Reason: fault.ErrStopped.Error() + " and had not ended when it was killed",
		RefusesRollback: a.refusesRollback.Load(), Checked: a.result.Checked,
	})
}

// writeResult writes the result to the termination message.
func (a *Agent) writeResult(m pack.Message) {
	if err := writeMessageFile(a.MessageFile, m.EncodeWithin(a.MessageLimit)); err != nil {
		a.Log.Warn("the result could not be left behind", "error", err)
	}
}

// writeMessageFile writes a message to the file that the kubelet reads. Outside a container that file does not exist,
// and it is created only if requested.
func writeMessageFile(asked string, message []byte) error {
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

// ReportKairos writes the result of DetectKairos for a mounted host to the termination message and to out.
func ReportKairos(mount string, set Settings, out io.Writer) error {
	h, err := host.Open(mount)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }()
	found, err := h.DetectKairos()
	if err != nil {
		return err
	}
	if err := writeMessageFile(set.MessageFile, found.Encode()); err != nil {
		return fmt.Errorf("leaving behind what was found: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s\n", found.Encode())
	return err
}
