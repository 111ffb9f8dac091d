// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

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

const logStamp = "2006-01-02-150405.000000000"

func logName(prefix string, at time.Time) string { return prefix + "-" + at.Format(logStamp) + ".log" }

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

// keepNewest removes all but the newest logs of one step. The error logs of earlier agents are counted separately.
func keepNewest(dir *host.Dir, prefix string, keep int) error {
	list, err := dir.Names(".")
	if err != nil {
		return err
	}
	var logs, errorLogs []string
	for _, e := range list {
		of, split := parseLogName(e.Name())
		switch {
		case of != prefix || !e.Type().IsRegular():
		case split:
			errorLogs = append(errorLogs, e.Name())
		default:
			logs = append(logs, e.Name())
		}
	}
	var errs []error
	for _, names := range [][]string{logs, errorLogs} { // sorted by name, which is by time
		for len(names) > keep {
			errs = append(errs, dir.Delete(names[0]))
			names = names[1:]
		}
	}
	return errors.Join(errs...)
}

// Removal is one file or directory that retention removes from the host.
type Removal struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// pruner removes what exceeds the limits, or only lists it.
type pruner struct {
	root    *host.Root
	dry     bool
	now     time.Time
	removed []Removal
}

func (s *pruner) remove(dir *host.Dir, name, why string) error {
	s.removed = append(s.removed, Removal{Path: path.Join(dir.Path, name), Why: why})
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

// pruneLogs limits the logs below one directory by count, age and size.
func (s *pruner) pruneLogs(folder string) error {
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

// pruneCopies removes earlier copies of a package. inUse is always kept.
func (s *pruner) pruneCopies(state *host.Dir, rec record.Package, inUse string) error {
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
		at := birthTime(state, e.Name())
		if place, left := parseStagingName(e.Name()); left {
			if place != inUse && s.now.Sub(at) > stagingAge && belongsToPackage(state, e.Name(), place, rec) {
				if err := s.remove(state, e.Name(), "no agent moved it into place"); err != nil {
					return err
				}
			}
			continue
		}
		if e.Name() != inUse && belongsToPackage(state, e.Name(), e.Name(), rec) {
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

// parseStagingName returns the final directory of a staged copy.
func parseStagingName(name string) (place string, ok bool) {
	for cut := len(name) - 1; cut > 0; cut-- {
		if name[cut] == '.' && copyName.MatchString(name[:cut]) {
			return name[:cut], true
		}
	}
	return "", false
}

// belongsToPackage reports whether a copy is of this package: by its manifest, or else by its name. Then only versions
// in the record count, because the name of another package may start with this one.
func belongsToPackage(state *host.Dir, name, place string, rec record.Package) bool {
	m, err := readManifest(state, name)
	if err == nil && m.Package != "" {
		return m.Package == rec.Name
	}
	parts := copyName.FindStringSubmatch(place)
	if parts == nil {
		return false
	}
	for _, v := range append([]record.Version{rec.Installed, rec.Previous}, rec.History...) {
		for _, version := range []string{v.Release, v.Version} {
			if version != "" && parts[1] == rec.Name+"-"+version {
				return true
			}
		}
	}
	return false
}

// pruneInterrupts limits the number of records and flags of interrupts. Interrupts that are not done are kept.
func (s *pruner) pruneInterrupts(state string) error {
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

func (s *pruner) pruneOldest(folder string, over func(*host.Dir, string) bool) error {
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

// pruneHost applies the retention limits. Its errors are only logged.
func (t *stageRun) pruneHost() {
	s := &pruner{root: t.Host, now: time.Now()}
	err := s.pruneLogs(path.Join(t.LogDir, t.config.Name))
	if path.Dir(path.Clean(t.CopyDir)) == path.Clean(t.StateDir) {
		err = errors.Join(err, s.pruneCopies(t.state, t.rec, path.Base(path.Clean(t.CopyDir))))
	}
	for _, r := range s.removed {
		t.Log.Info("removed", "path", r.Path, "why", r.Why)
	}
	t.logIgnored(err)
}

// Prune applies the retention limits to everything below the state and log roots, or only lists what it would remove.
func Prune(root *host.Root, stateDir, logDir string, dry bool) ([]Removal, error) {
	s := &pruner{root: root, dry: dry, now: time.Now()}
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
			err = s.pruneCopies(state, rec, newestCopy(state, rec))
		}
		errs = append(errs, err)
	}
	logs, err := root.Dir(logDir)
	if err == nil {
		list, listErr := logs.Names(".")
		errs = append(errs, listErr, logs.Close())
		for _, e := range list {
			if e.IsDir() {
				errs = append(errs, s.pruneLogs(path.Join(logDir, e.Name())))
			}
		}
	}
	errs = append(errs, s.pruneInterrupts(stateDir))
	return s.removed, errors.Join(errs...)
}

// newestCopy is the copy that a running pod may use.
func newestCopy(state *host.Dir, rec record.Package) string {
	if rec.Installed.Version == pack.Uninstalled {
		return ""
	}
	newest, at := "", time.Time{}
	list, _ := state.Names(".")
	for _, e := range list {
		if made := birthTime(state, e.Name()); e.IsDir() && copyName.MatchString(e.Name()) && made.After(at) && belongsToPackage(state, e.Name(), e.Name(), rec) {
			newest, at = e.Name(), made
		}
	}
	return newest
}
