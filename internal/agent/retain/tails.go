// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package retain

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// tailBytes is how much of the end of a log is printed.
const tailBytes = 4 << 10

// stepLog is a log of a step.
type stepLog struct {
	name, stamp string
	mode        pack.Mode // empty if the log does not say
}

// WriteTails writes the end of the newest log of each step in a log folder, the oldest first, each below a line with its name: of all
// modes, or of one and its check. It returns how many it wrote.
func WriteTails(out io.Writer, root *host.Root, folder string, mode pack.Mode) (int, error) {
	dir, err := root.Dir(folder)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	logs, err := findNewestLogs(dir)
	if err != nil {
		return 0, err
	}
	logs = slices.DeleteFunc(logs, func(l stepLog) bool { return mode != "" && l.mode.Action() != mode })
	for _, l := range logs {
		text, err := readTail(dir, l.name)
		if err != nil {
			return 0, err
		}
		if _, err := fmt.Fprintf(out, "==> %s [%s] <==\n%s\n", l.name, cmp.Or(l.mode, "unknown"), strings.TrimSuffix(text, "\n")); err != nil {
			return 0, err
		}
	}
	return len(logs), nil
}

// WriteTailsOf does the same for one package of a Skyhook with this log folder. Without a folder of its name it writes those of every
// other one: a package has the name in its config.json there, which may be another and shared, such as shellscript.
func WriteTailsOf(out io.Writer, root *host.Root, folder, pkg string, mode pack.Mode) (int, error) {
	own := path.Join(folder, pkg)
	if _, err := root.Stat(own); pkg == "" || !errors.Is(err, fs.ErrNotExist) {
		return WriteTails(out, root, own, mode)
	}
	found := 0
	err := root.EachEntry(folder, func(_ *host.Dir, e fs.DirEntry) error {
		if !e.IsDir() {
			return nil
		}
		if _, err := fmt.Fprintf(out, "==> packages with the package_name %s <==\n", e.Name()); err != nil {
			return err
		}
		n, err := WriteTails(out, root, path.Join(folder, e.Name()), mode)
		found += n
		return err
	})
	return found, err
}

// findNewestLogs returns the newest log of each step and mode, of whatever version, by their time.
func findNewestLogs(dir *host.Dir) ([]stepLog, error) {
	names, err := dir.Files(".")
	if err != nil {
		return nil, err
	}
	newest, modes := map[string]stepLog{}, map[string]pack.Mode{}
	for _, name := range names { // those of one step by their time
		prefix, isOfErrors := parseLogName(path.Base(name))
		st, err := dir.Lstat(name)
		if prefix == "" || isOfErrors || err != nil || !st.Mode().IsRegular() {
			continue
		}
		step := path.Join(path.Dir(name), prefix)
		found, err := readMode(dir, name)
		if err != nil {
			return nil, err
		}
		modes[step] = cmp.Or(found, modes[step]) // a further file of a long run does not say
		l := stepLog{name, strings.TrimPrefix(path.Base(name), prefix), modes[step]}
		_, unversioned, _ := strings.Cut(step, "/")
		if key := string(l.mode) + " " + unversioned; newest[key].stamp < l.stamp {
			newest[key] = l
		}
	}
	return slices.SortedFunc(maps.Values(newest), func(a, b stepLog) int {
		return cmp.Or(cmp.Compare(a.stamp, b.stamp), cmp.Compare(a.name, b.name))
	}), nil
}

// readMode reads the mode from the first line of a log: "TIME MODE: COMMAND", or "TIME interrupt TYPE".
func readMode(dir *host.Dir, name string) (pack.Mode, error) {
	text, err := readPart(dir, name, 0, 256)
	words := strings.Fields(text)
	if err != nil || len(words) < 2 {
		return "", err
	}
	if mode, isKnown := pack.ParseMode(strings.TrimSuffix(words[1], ":")); isKnown {
		return mode, nil
	}
	return "", nil
}

// readTail returns the end of a log, from the begin of a line.
func readTail(dir *host.Dir, name string) (string, error) {
	st, err := dir.Lstat(name)
	if err != nil {
		return "", err
	}
	from := max(0, st.Size()-tailBytes)
	text, err := readPart(dir, name, from, tailBytes)
	if _, after, isFound := strings.Cut(text, "\n"); from > 0 && isFound && after != "" {
		text = after
	}
	return text, err
}

func readPart(dir *host.Dir, name string, from, bytes int64) (string, error) {
	f, err := dir.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, from, bytes))
	return string(text), err
}
