// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package retain limits what the agent leaves behind on a host: logs, copies of packages, and what is known of interrupts.
package retain

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/delivery"
	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Retention limits on the host. The newest of each kind is always kept.
const (
	logsPerStep    = 5
	logAge         = 90 * 24 * time.Hour
	logBytes       = 256 << 20 // of one package_name
	copiesKept     = 2         // previous copies of a package, in addition to the one in use
	stagingAge     = time.Hour // of staged copies that no agent moved into place
	interruptsKept = 50
)

// One run of a step writes that many files, each of that size, and then nothing more.
const (
	filesPerRun  = 4
	bytesPerFile = 16 << 20
)

const logStamp = "2006-01-02-150405.000000000"

func logName(prefix string, at time.Time) string { return prefix + "-" + at.Format(logStamp) + ".log" }

// runLog is the log of one run of a step. It counts what it writes. What a step left running may still write when the log is closed.
type runLog struct {
	dir    *host.Dir
	prefix string
	mu     sync.Mutex
	file   *os.File
	files  int // with this one
	free   int // bytes in this one
}

// OpenLog creates a log of a step of the host, and the directories above it. closeLog removes what exceeds the limits there.
func OpenLog(root *host.Root, step string) (log io.Writer, closeLog func() error, err error) {
	dir, err := root.MakeDir(path.Dir(step), 0o700)
	if err != nil {
		return nil, nil, err
	}
	l := &runLog{dir: dir, prefix: path.Base(step)}
	if err := l.beginFile(); err != nil {
		return nil, nil, errors.Join(err, dir.Close())
	}
	return l, func() error { return errors.Join(l.close(), NewPruner(root).PruneLogs(dir.Path)) }, nil
}

func (l *runLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.file.Close(), l.dir.Close())
}

func (l *runLog) beginFile() error {
	f, err := createLog(l.dir, l.prefix)
	if err != nil {
		return err
	}
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.files, l.free = f, l.files+1, bytesPerFile
	return nil
}

// Write continues in another file when one is full. When the last is full, it says so there, and returns an error.
func (l *runLog) Write(b []byte) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n < len(b) {
		if l.free == 0 && l.files == filesPerRun {
			full := fmt.Errorf("the logs of one run have at most %d MiB", filesPerRun*bytesPerFile>>20)
			_, err := fmt.Fprintf(l.file, "\n%s no more is written: %v; the container's log goes on\n", time.Now().UTC().Format(time.RFC3339Nano), full)
			return n, errors.Join(full, err)
		}
		if l.free == 0 {
			if err := l.beginFile(); err != nil {
				return n, err
			}
		}
		written, err := l.file.Write(b[n:min(len(b), n+l.free)])
		n, l.free = n+written, l.free-written
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// createLog creates a log named by the time. The name is unique even if the clock was set back.
func createLog(dir *host.Dir, prefix string) (*os.File, error) {
	for at := time.Now().UTC(); ; at = at.Add(time.Nanosecond) {
		f, err := dir.OpenFile(logName(prefix, at), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
		if !errors.Is(err, os.ErrExist) {
			return f, err
		}
	}
}

// parseLogName returns the name of a log without time and suffix. Earlier agents used a coarser time and a second file
// for errors.
func parseLogName(name string) (prefix string, split bool) {
	text, split := strings.CutSuffix(name, ".log.err")
	if !split {
		var ok bool
		if text, ok = strings.CutSuffix(name, ".log"); !ok {
			return "", false
		}
	}
	for _, layout := range []string{logStamp, "2006-01-02-150405"} {
		if cut := len(text) - len(layout); cut > 1 && text[cut-1] == '-' {
			if _, err := time.Parse(layout, text[cut:]); err == nil {
				return text[:cut-1], split
			}
		}
	}
	return "", false
}

// Removal is one file or directory that retention removes from the host.
type Removal struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Pruner removes what exceeds the limits, or only lists it.
type Pruner struct {
	root    *host.Root
	dry     bool
	now     time.Time
	Removed []Removal
}

// NewPruner makes a Pruner that has removed nothing yet.
func NewPruner(root *host.Root) *Pruner { return &Pruner{root: root, now: time.Now()} }

func (s *Pruner) remove(dir *host.Dir, name, why string) error {
	s.Removed = append(s.Removed, Removal{Path: path.Join(dir.Path, name), Why: why})
	if s.dry {
		return nil
	}
	return dir.DeleteAll(name)
}

type logFile struct {
	name   string
	prefix string
	split  bool
	size   int64
	at     time.Time
}

// PruneLogs limits the logs below one directory by count, age and size.
func (s *Pruner) PruneLogs(folder string) error {
	dir, err := s.root.Dir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Files(".")
	if err != nil {
		return err
	}
	var files []logFile
	for _, name := range names {
		prefix, split := parseLogName(path.Base(name))
		st, err := dir.Lstat(name)
		if err != nil || prefix == "" || !st.Mode().IsRegular() {
			continue
		}
		files = append(files, logFile{name: name, prefix: path.Join(path.Dir(name), prefix), split: split, size: st.Size(), at: st.ModTime()})
	}
	slices.SortFunc(files, func(a, b logFile) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(b.name, a.name)) })
	kept, bytes := map[string]int{}, int64(0)
	for i, f := range files {
		kind := f.prefix
		if f.split {
			kind += " errors"
		}
		why := ""
		switch {
		case i == 0:
		case kept[kind] >= logsPerStep:
			why = "there are newer logs of the step"
		case s.now.Sub(f.at) > logAge:
			why = "it is old"
		case bytes+f.size > logBytes:
			why = "the logs of the package are large"
		}
		if why == "" {
			kept[kind]++
			bytes += f.size
			continue
		}
		if err := s.remove(dir, f.name, why); err != nil {
			return err
		}
	}
	return nil
}

// PruneCopies removes earlier copies of a package. inUse is always kept.
func (s *Pruner) PruneCopies(state *host.Dir, rec record.Package, inUse string) error {
	list, err := state.Names(".")
	if err != nil {
		return err
	}
	type earlier struct {
		name string
		at   time.Time
	}
	var copies []earlier
	for _, e := range list {
		if !e.IsDir() {
			continue
		}
		at := delivery.BirthTime(state, e.Name())
		if place, left := delivery.ParseStagingName(e.Name()); left {
			if place != inUse && s.now.Sub(at) > stagingAge && delivery.IsCopyOf(state, e.Name(), place, rec) {
				if err := s.remove(state, e.Name(), "no agent moved it into place"); err != nil {
					return err
				}
			}
			continue
		}
		if e.Name() != inUse && delivery.IsCopyOf(state, e.Name(), e.Name(), rec) {
			copies = append(copies, earlier{e.Name(), at})
		}
	}
	slices.SortFunc(copies, func(a, b earlier) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(b.name, a.name)) })
	keep, why := copiesKept, "there are newer copies of the package"
	if rec.Installed.Version == pack.Uninstalled {
		keep, why = 0, "the package is uninstalled"
	}
	for i, c := range copies {
		if i < keep || keep == 0 && s.now.Sub(c.at) < stagingAge {
			continue
		}
		if err := s.remove(state, c.name, why); err != nil {
			return err
		}
	}
	return nil
}

// PruneInterrupts limits the number of records and flags of interrupts. Interrupts that are not done are kept.
func (s *Pruner) PruneInterrupts(state string) error {
	if err := s.pruneOldest(path.Join(state, "interrupts", "records"), func(dir *host.Dir, name string) bool {
		content, err := dir.ReadFile(name)
		if err != nil || !strings.HasSuffix(name, ".json") {
			return false
		}
		i, err := record.DecodeInterrupt(content)
		return err == nil && i.State == record.Done
	}); err != nil {
		return err
	}
	return s.pruneOldest(path.Join(state, "interrupts", "flags"), func(*host.Dir, string) bool { return true })
}

func (s *Pruner) pruneOldest(folder string, over func(*host.Dir, string) bool) error {
	dir, err := s.root.Dir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	list, err := dir.Names(".")
	if err != nil {
		return err
	}
	at := func(e fs.DirEntry) time.Time {
		st, err := e.Info()
		if err != nil {
			return s.now
		}
		return st.ModTime()
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return cmp.Or(at(b).Compare(at(a)), cmp.Compare(b.Name(), a.Name())) })
	kept := 0
	for _, e := range list {
		if !over(dir, e.Name()) {
			continue
		}
		if kept++; kept <= interruptsKept {
			continue
		}
		if err := s.remove(dir, e.Name(), "there are newer interrupts"); err != nil {
			return err
		}
	}
	return nil
}

// Prune applies the retention limits to everything below the state and log roots, or only lists what it would remove.
func Prune(root *host.Root, stateDir, logDir string, dry bool) ([]Removal, error) {
	s := NewPruner(root)
	s.dry = dry
	names, err := record.ListPackages(root, stateDir)
	if err != nil {
		return nil, err
	}
	state, err := root.Dir(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer state.Close()
	var errs []error
	for _, name := range names {
		rec, err := record.ReadPackage(root, stateDir, name)
		if err == nil {
			err = s.PruneCopies(state, rec, delivery.FindNewest(state, rec))
		}
		errs = append(errs, err)
	}
	errs = append(errs, root.EachEntry(logDir, func(_ *host.Dir, e fs.DirEntry) error {
		if e.IsDir() {
			errs = append(errs, s.PruneLogs(path.Join(logDir, e.Name())))
		}
		return nil
	}))
	errs = append(errs, s.PruneInterrupts(stateDir))
	return s.Removed, errors.Join(errs...)
}
