// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/skyhook-k8s/skyhook/internal/agent/delivery"
	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/overlay"
	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// parseDriftChecks returns the check modes that run, in the order in which a package meets them.
func parseDriftChecks(text string) (out []pack.Mode) {
	if text == "" {
		return []pack.Mode{pack.ModeApplyCheck, pack.ModeConfigCheck}
	}
	names := strings.Split(text, ",")
	for _, m := range pack.Modes() {
		if m.IsCheck() && slices.Contains(names, string(m)) {
			out = append(out, m)
		}
	}
	return out
}

// driftRun looks whether a package is still as it was left. Of the host it changes nothing: it takes no lock, so that no stage waits
// for it, and writes neither records nor logs.
type driftRun struct {
	stageRun
	files *host.Root // where delivered files are read
	found *pack.Drift

	marks map[string]string          // what tells by path, without reading it, that a delivered file has changed
	wrote map[string]pack.DriftWrite // by path: after which step it had changed last
}

// errNotCheckable is why nothing can be known about a package.
type errNotCheckable struct{ text string }

func (e errNotCheckable) Error() string { return e.text }

func notCheckable(format string, args ...any) error {
	return errNotCheckable{fmt.Sprintf(format, args...)}
}

// runDrift compares what was delivered, runs the checks again, and compares once more.
func (a *Agent) runDrift(ctx context.Context) error {
	a.WriteLogs = false
	a.Env[pack.EnvDrift] = "true"
	d := &driftRun{stageRun: stageRun{Agent: a}, files: a.Host, found: &pack.Drift{}}
	a.result.Drift = d.found
	err := d.look(ctx)
	var unknown errNotCheckable
	if errors.As(err, &unknown) {
		d.found.NotCheckable = a.redact.Replace(unknown.text)
		a.Log.Warn("the package cannot be checked", "reason", unknown.text)
		return nil
	}
	return err
}

func (d *driftRun) look(ctx context.Context) error {
	if d.ReadOnlyRoot != "" {
		files, err := host.Open(d.ReadOnlyRoot)
		if err != nil {
			return fault.New(pack.BadUsage, "%s: %w", pack.EnvReadOnlyRoot, err)
		}
		defer files.Close()
		d.files = files
	}
	if err := d.open(); err != nil {
		return err
	}
	defer d.copied.Close()
	before, err := d.compare()
	if err != nil {
		return err
	}
	if d.isCopyChanged(before) {
		d.Log.Warn("the package's copy on the host is not as it was delivered, so its checks do not run", "copy", d.CopyDir)
	} else if err := d.runAllChecks(ctx); err != nil {
		return err
	}
	after, err := d.compare()
	if err != nil {
		return err
	}
	d.noteWritten(before, after)
	for _, f := range before {
		d.found.Files = append(d.found.Files, f.DriftFile)
		d.printDiff(f)
	}
	d.found.Total = len(before)
	if d.result.Reason == "" && len(before) > 0 {
		d.result.Reason = d.redact.Replace(fmt.Sprintf("%s is not as it was delivered: %s", before[0].Path, before[0].What))
	}
	return nil
}

// open reads the record and the package's copy.
func (d *driftRun) open() error {
	name := d.Resource.Package
	if name == "" {
		return fault.New(pack.BadUsage, "%s is not set: it names the package", pack.EnvResourceID)
	}
	rec, err := record.ReadPackage(d.files, d.StateDir, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return notCheckable("the host has no record of package %s: another agent installed it", name)
	case err != nil:
		return notCheckable("the record of package %s cannot be read: %v", name, err)
	case rec.Installed.Version == "" || rec.Installed.Version == pack.Uninstalled:
		return notCheckable("the record of package %s on the host says that it is not installed", name)
	}
	d.rec = rec
	if err := d.openCopy(); err != nil {
		return err
	}
	config, problems := pack.Load(d.copied.FS(), pack.ModeApply, pack.Want{Version: d.Resource.Version})
	if err := problems.Err(); err != nil {
		return notCheckable("the package's copy on the host is not valid: %v", err)
	}
	d.config = config
	return nil
}

// openCopy opens the copy of the package that the operator names, or else the newest one: an earlier operator did not record which it
// was.
func (d *driftRun) openCopy() error {
	copied, err := d.Host.Dir(d.CopyDir)
	if errors.Is(err, fs.ErrNotExist) {
		state, stateErr := d.Host.Dir(d.StateDir)
		if stateErr != nil {
			return notCheckable("the package's copy %s is not on the host", d.CopyDir)
		}
		defer state.Close()
		newest := delivery.FindNewest(state, d.rec)
		if newest == "" {
			return notCheckable("the package's copy %s is not on the host", d.CopyDir)
		}
		d.CopyDir = path.Join(d.StateDir, newest)
		copied, err = d.Host.Dir(d.CopyDir)
	}
	if err != nil {
		return notCheckable("the package's copy on the host cannot be read: %v", err)
	}
	d.copied = copied
	return nil
}

// differing is a delivered file that differs, with what it should be and what it is.
type differing struct {
	pack.DriftFile
	want record.Content
	now  *record.Content // nil for none
}

// compare returns the delivered files that differ, and the package's copy if it differs.
func (d *driftRun) compare() (out []differing, err error) {
	for _, f := range d.delivered() {
		now, err := overlay.ReadContent(d.files, f.Path)
		var odd *fault.Fault
		what := ""
		switch {
		case errors.As(err, &odd):
			what = pack.DriftKind
		case err != nil:
			return nil, err
		default:
			what = describeDifference(&f.Content, now)
		}
		if what != "" {
			out = append(out, differing{pack.DriftFile{Path: f.Path, What: what, Config: f.Config}, f.Content, now})
		}
	}
	if d.rec.Installed.Digest == "" {
		return out, nil
	}
	if digest, err := digestPackage(d.copied); err != nil || digest != d.rec.Installed.Digest {
		out = append(out, differing{pack.DriftFile{Path: d.CopyDir, What: pack.DriftChanged}, record.Content{Digest: d.rec.Installed.Digest}, &record.Content{Digest: digest}})
	}
	return out, nil
}

func (d *driftRun) isCopyChanged(found []differing) bool {
	return slices.ContainsFunc(found, func(f differing) bool { return f.Path == d.CopyDir })
}

// delivered returns the files that the package left; those that the overlay wrote, if an earlier agent did not note more.
func (d *driftRun) delivered() []record.Delivered {
	if d.rec.Delivered != nil {
		return d.rec.Delivered
	}
	var out []record.Delivered
	for _, f := range d.rec.Overlay.Files {
		out = append(out, record.Delivered{Path: f.Path, Content: f.Wrote})
	}
	return out
}

// describeDifference says how a file differs; empty if it does not.
func describeDifference(want, now *record.Content) string {
	switch {
	case now == nil:
		return pack.DriftMissing
	case (want.Link == "") != (now.Link == ""):
		return pack.DriftKind
	case want.Digest != now.Digest || want.Link != now.Link:
		return pack.DriftChanged
	case want.Mode != now.Mode:
		return pack.DriftMode
	}
	return ""
}

// noteDelivered notes the files of the overlay and of the config as they are now, and reports whether that is new.
func (t *stageRun) noteDelivered() (isChanged bool, err error) {
	var out []record.Delivered
	add := func(at string, isConfig bool) error {
		now, err := overlay.ReadContent(t.Host, at)
		var odd *fault.Fault
		if errors.As(err, &odd) {
			return nil // a step replaced it by something else
		}
		if now != nil {
			now.UID, now.GID = 0, 0
			out = append(out, record.Delivered{Path: at, Config: isConfig, Content: *now})
		}
		return err
	}
	var errs []error
	for _, f := range t.rec.Overlay.Files {
		errs = append(errs, add(f.Path, false))
	}
	config, err := delivery.ListConfigFiles(t.copied)
	errs = append(errs, err)
	for _, name := range config {
		errs = append(errs, add(path.Join(t.CopyDir, pack.ConfigMapDir, name), true))
	}
	if err := errors.Join(errs...); err != nil {
		return false, err
	}
	if t.mode.Uninstalls() {
		out = nil
	}
	isChanged = !slices.Equal(out, t.rec.Delivered)
	t.rec.Delivered = out
	return isChanged, nil
}

// runAllChecks runs the steps of every check mode that the package has, also after a failure. The first failure is described in the
// result.
func (d *driftRun) runAllChecks(ctx context.Context) error {
	d.noteMarks("", "")
	for _, mode := range d.DriftChecks {
		if len(d.config.Steps(mode)) == 0 {
			continue
		}
		first, err := d.runMode(ctx, mode)
		if err != nil {
			return err
		}
		d.found.Ran = append(d.found.Ran, mode)
		if first == nil {
			continue
		}
		d.found.Checks = append(d.found.Checks, mode)
		if d.result.Reason == "" {
			d.noteFailedCheck(first)
			d.result.Reason = d.redact.Replace(first.Error())
		}
	}
	return nil
}

// runMode runs all steps of a check mode and returns the first failure.
func (d *driftRun) runMode(ctx context.Context, mode pack.Mode) (first *fault.Fault, err error) {
	if err := d.planMode(mode); err != nil {
		return nil, notCheckable("the package's copy on the host is not complete: %v", err)
	}
	return d.runCheckSteps(ctx, func(step string) { d.noteMarks(mode, step) })
}

// What is shown of how a file differs.
const (
	maxDiffedFile = 256 << 10
	maxDiffLines  = 200
)

// printDiff prints how a file differs from what was delivered, as far as both can be read.
func (d *driftRun) printDiff(f differing) {
	lines := d.diff(f)
	if more := len(lines) - maxDiffLines; more > 0 {
		lines = append(lines[:maxDiffLines], fmt.Sprintf("… and %d more lines", more))
	}
	for _, line := range lines {
		fmt.Fprintln(d.Out, d.redact.Replace(pack.DriftDiffPrefix+line))
	}
}

func (d *driftRun) diff(f differing) []string {
	if f.Path == d.CopyDir {
		return []string{"the files of the package in " + f.Path + " differ"}
	}
	if f.What == pack.DriftMode || f.What == pack.DriftKind || f.want.Link != "" || f.now != nil && f.now.Link != "" {
		return []string{fmt.Sprintf("%s: %s was delivered, and there is %s", f.Path, describeContent(&f.want), describeContent(f.now))}
	}
	want, isKnown := d.readDelivered(f)
	if !isKnown {
		return []string{f.Path + ": " + f.What + "; a step of the package had changed what was delivered, so it is not known how"}
	}
	var now []byte
	if f.now != nil {
		now, isKnown = readLimited(d.files.Open, f.Path)
	}
	if !isKnown || !isText(want) || !isText(now) {
		return []string{"Binary file " + f.Path + " differs"}
	}
	_, text, _ := strings.Cut(string(diff.Diff("delivered"+f.Path, want, "host"+f.Path, now)), "\n") // after the line "diff"
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}

func describeContent(c *record.Content) string {
	switch {
	case c == nil:
		return "something else"
	case c.Link != "":
		return "a link to " + c.Link
	}
	return "a file with mode " + c.Mode.String()
}

// readDelivered reads what was delivered: from the package's copy, or from the configMap that is mounted.
func (d *driftRun) readDelivered(f differing) ([]byte, bool) {
	open := func(name string) (*os.File, error) { return d.files.Open(path.Join(d.CopyDir, pack.OverlayDir, name)) }
	if f.Config {
		open = func(name string) (*os.File, error) {
			return os.Open(path.Join(d.SourceDir, pack.ConfigMapDir, path.Base(name)))
		}
	}
	content, isRead := readLimited(open, f.Path)
	sum := sha256.Sum256(content)
	return content, isRead && hex.EncodeToString(sum[:]) == f.want.Digest
}

// readLimited reads a file that is not too large to be shown.
func readLimited(open func(string) (*os.File, error), name string) ([]byte, bool) {
	f, err := open(name)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxDiffedFile+1))
	return content, err == nil && len(content) <= maxDiffedFile
}

func isText(content []byte) bool { return utf8.Valid(content) && !bytes.ContainsRune(content, 0) }
