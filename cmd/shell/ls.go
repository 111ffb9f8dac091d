// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ls lists names, one per line; with -l also mode, owner, size, time and target of a link.
func ls(args []string) int {
	opts, files, err := parseOptions(args, "laAd1Rh", map[string]rune{"all": 'a', "almost-all": 'A', "directory": 'd'})
	if err != nil {
		return printError("ls", err, 1)
	}
	if len(files) == 0 {
		files = []string{"."}
	}
	titled := len(files) > 1
	return runOnFiles("ls", files, func(file string) error {
		st, err := os.Lstat(file)
		if err != nil {
			return err
		}
		if to, err := os.Stat(file); err == nil && to.IsDir() && !opts.has('l') {
			st = to
		}
		if !st.IsDir() || opts.has('d') {
			return printEntry(opts, file, file, st)
		}
		return listDir(opts, file, titled)
	})
}

func listDir(opts options, dir string, titled bool) error {
	if titled || opts.has('R') {
		fmt.Printf("%s:\n", dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") && !opts.has('a') && !opts.has('A') {
			continue
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		if err := printEntry(opts, filepath.Join(dir, e.Name()), e.Name(), st); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if opts.has('R') && e.IsDir() {
			fmt.Println()
			if err := listDir(opts, filepath.Join(dir, e.Name()), true); err != nil {
				return err
			}
		}
	}
	return nil
}

func printEntry(opts options, file, name string, st fs.FileInfo) error {
	if !opts.has('l') {
		fmt.Println(name)
		return nil
	}
	lead := ""
	if st.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(file)
		if err != nil {
			return err
		}
		lead = " -> " + target
	}
	s := st.Sys().(*syscall.Stat_t)
	fmt.Printf("%s %d %d %10d %s %s%s\n", st.Mode(), s.Uid, s.Gid, st.Size(), st.ModTime().UTC().Format("2006-01-02 15:04:05"), name, lead)
	return nil
}
