// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// answerDir is where steps of a preflight leave their answers. In the pod of a preflight nothing else of the host can be written.
const answerDir = "/tmp"

// answerMode lets the user of the steps append to the file, and nobody else read it.
const answerMode = 0o622

// checksAfterNone are the check modes that must pass if nothing is to be done.
var checksAfterNone = []pack.Mode{pack.ModeApplyCheck, pack.ModeConfigCheck, pack.ModePostInterruptCheck}

// runPreflight lets the steps of a package answer what it needs on this host. Like a check for drift it takes no lock, and writes
// neither records nor logs.
func (a *Agent) runPreflight(ctx context.Context) error {
	a.WriteLogs = false
	a.Env[pack.EnvPreflight] = "true"
	if err := a.checkCopyDir(); err != nil {
		return err
	}
	copied, err := a.deliverPackage()
	if err != nil {
		return err
	}
	defer copied.Close()
	t := &stageRun{Agent: a, mode: a.Mode, copied: copied}
	if err := t.loadPackage(); err != nil {
		return err
	}
	a.result.Preflight = &pack.Preflight{Privileges: t.config.Privileges} // they count even if a step fails
	if len(t.config.Steps(t.mode)) == 0 {
		a.result.Preflight.Absent = true
		return nil
	}
	if err := t.requireConfigFiles(); err != nil {
		return err
	}
	found, err := t.askSteps(ctx)
	if err == nil && found.Answer == pack.AnswerNone {
		err = t.verifyNone(ctx, &found)
	}
	if err != nil {
		return err
	}
	found.Privileges = t.config.Privileges
	a.Log.Info("answered", "answer", found.Answer, "services", found.Services, "reason", found.Reason, "wrong", found.Wrong)
	a.result.Preflight = &found
	return nil
}

// askSteps runs the steps of the preflight and reads their answers.
func (t *stageRun) askSteps(ctx context.Context) (found pack.Preflight, err error) {
	dir, err := t.Host.Dir(answerDir)
	if err != nil {
		return found, err
	}
	defer dir.Close()
	name, err := createAnswerFile(dir)
	if err != nil {
		return found, err
	}
	t.answer = path.Join(answerDir, name)
	defer func() {
		t.answer = ""
		err = errors.Join(err, dir.Delete(name))
	}()
	if err := t.planMode(t.mode); err != nil {
		return found, err
	}
	for _, action := range t.plan.Actions {
		if _, err := t.performStep(ctx, action); err != nil {
			return found, err
		}
	}
	text, err := dir.ReadFile(name)
	if err != nil {
		return found, err
	}
	if found, err = pack.ParseAnswers(string(text)); err != nil {
		return found, fault.New(pack.StepFailed, "%w", err)
	}
	found.Reason = t.redact.Replace(found.Reason)
	return found, nil
}

// createAnswerFile creates an empty file of a name that no one can guess: others can write to the directory, too.
func createAnswerFile(dir *host.Dir) (name string, err error) {
	name = "skyhook-answer-" + rand.Text()
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = errors.Join(f.Chmod(answerMode), f.Close())
	}
	if err != nil {
		return "", fault.New(pack.HostProblem, "the file for the answers cannot be created in %s: %w", answerDir, err)
	}
	return name, nil
}

// verifyNone runs the checks of the package. The first one that fails shows that something is to be done.
func (t *stageRun) verifyNone(ctx context.Context, found *pack.Preflight) error {
	t.Env[pack.EnvDrift] = "true"
	for _, mode := range checksAfterNone {
		if err := t.planMode(mode); err != nil {
			return err
		}
		first, err := t.runCheckSteps(ctx, func(string) {})
		if err != nil {
			return err
		}
		if first != nil {
			t.noteFailedCheck(first)
			found.Wrong, found.Reason = true, t.redact.Replace(describeFailedCheck(mode, first))
			return nil
		}
	}
	return nil
}

// describeFailedCheck says what a check said last, and how it ended.
func describeFailedCheck(mode pack.Mode, f *fault.Fault) string {
	said := ""
	if n := len(f.Lines); n > 0 {
		said = f.Lines[n-1]
	}
	if said == "" {
		return fmt.Sprintf("%s fails: %s", mode, f.Error())
	}
	return fmt.Sprintf("%s fails: %s (%s)", mode, said, cmp.Or(f.Step, "a step"))
}
