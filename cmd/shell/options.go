// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// options are the flags of a command line: by letter, with the value of those that take one.
type options map[rune]string

func (o options) has(letter rune) bool { _, there := o[letter]; return there }

// parseOptions parses the flags of a command line, in any order and combined, until `--`. letters are the known ones; one
// that takes a value is followed by a colon; long maps long names. Other arguments are returned in order.
func parseOptions(args []string, letters string, long map[string]rune) (options, []string, error) {
	opts, rest := options{}, []string{}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			return opts, append(rest, args...), nil
		case arg == "-" || !strings.HasPrefix(arg, "-"):
			rest = append(rest, arg)
		case strings.HasPrefix(arg, "--"):
			name, value, _ := strings.Cut(arg[2:], "=")
			letter, known := long[name]
			if !known {
				return nil, nil, fmt.Errorf("option %s is not known; known are %s", arg, listFlags(letters, long))
			}
			opts[letter] = value
		default:
			var err error
			if args, err = parseShortFlags(opts, arg[1:], args, letters); err != nil {
				return nil, nil, fmt.Errorf("%w; known are %s", err, listFlags(letters, long))
			}
		}
	}
	return opts, rest, nil
}

// parseShortFlags parses flags such as -rf, and the value of the last when it needs one.
func parseShortFlags(opts options, flags string, args []string, letters string) ([]string, error) {
	for i, letter := range flags {
		at := strings.IndexRune(letters, letter)
		if at < 0 || letter == ':' {
			return nil, fmt.Errorf("option -%c is not known", letter)
		}
		if at+1 == len(letters) || letters[at+1] != ':' {
			opts[letter] = ""
			continue
		}
		if value := flags[i+1:]; value != "" {
			opts[letter] = value
			return args, nil
		}
		if len(args) == 0 {
			return nil, fmt.Errorf("option -%c needs a value", letter)
		}
		opts[letter] = args[0]
		return args[1:], nil
	}
	return args, nil
}

func listFlags(letters string, long map[string]rune) string {
	var all []string
	for _, l := range strings.ReplaceAll(letters, ":", "") {
		all = append(all, "-"+string(l))
	}
	var names []string
	for n := range long {
		names = append(names, "--"+n)
	}
	slices.Sort(names)
	return strings.Join(append(all, names...), " ")
}
