// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Command visits measures how long nodes are held: it brings up a Kubernetes with two real nodes, runs Skyhooks on them in each layout of
// pods, and prints one table. It needs root and what test/cluster needs.
//
//	go run ./test/visits
//	go run ./test/visits -layouts Compatible -visits chain -images warm
//
// A third node has the operator, so that nothing else happens on the two that are measured. They are visited one after the other.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

// Layouts of pods, and states of the images on the nodes.
const (
	compatible = "Compatible"
	compact    = "Compact"
	cold       = "cold"
	warm       = "warm"
)

// settings are what is measured, and where.
type settings struct {
	layouts, kinds, images []string
	runs                   int
	cluster                string // that is up already; empty for one of our own
	keep, verbose          bool
	limit                  time.Duration // of one Skyhook
}

func main() {
	set, err := readSettings(os.Args[1:])
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		err = run(ctx, set, os.Stdout, os.Stderr)
		stop()
	}
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "visits:", err)
		os.Exit(1)
	}
}

func readSettings(args []string) (settings, error) {
	var set settings
	flags := flag.NewFlagSet("visits", flag.ContinueOnError)
	layouts := flags.String("layouts", compatible+","+compact, "layouts of pods")
	kinds := flags.String("visits", strings.Join(kindNames(), ","), "what is done on the nodes")
	images := flags.String("images", cold+","+warm, "whether the nodes have the images already")
	flags.IntVar(&set.runs, "runs", 1, "how often each is measured; the table has the means")
	flags.StringVar(&set.cluster, "cluster", "", "a cluster of test/cluster that is up, with the nodes node1, node2 and operator; it is left up")
	flags.BoolVar(&set.keep, "keep", false, "leave the cluster up")
	flags.BoolVar(&set.verbose, "v", false, "print when each container was seen to begin and to end")
	flags.DurationVar(&set.limit, "limit", 10*time.Minute, "how long one Skyhook may take")
	if err := flags.Parse(args); err != nil {
		return set, err
	}
	for _, list := range []struct {
		name, text string
		known      []string
		to         *[]string
	}{
		{"layouts", *layouts, []string{compatible, compact}, &set.layouts},
		{"visits", *kinds, kindNames(), &set.kinds},
		{"images", *images, []string{cold, warm}, &set.images},
	} {
		for _, word := range strings.Split(list.text, ",") {
			if !slices.Contains(list.known, word) {
				return set, fmt.Errorf("-%s %s: use %s", list.name, word, strings.Join(list.known, ", "))
			}
			*list.to = append(*list.to, word)
		}
	}
	if set.runs < 1 || flags.NArg() > 0 {
		return set, errors.New("-runs must be at least 1, and there are no other arguments")
	}
	return set, nil
}

// run measures everything and prints the table.
func run(ctx context.Context, set settings, out, progress io.Writer) (err error) {
	c, err := bringUp(ctx, set, progress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.takeDown(set.keep)) }()
	if err := c.install(ctx); err != nil {
		return err
	}
	var results []result
	for _, kind := range set.kinds {
		for _, layout := range set.layouts {
			if err := c.useLayout(ctx, layout); err != nil {
				return err
			}
			for _, images := range set.images {
				r := result{kind: kind, layout: layout, images: images}
				for range set.runs {
					seen, err := c.measure(ctx, r, len(results)*set.runs+len(r.visits), set.limit)
					if err != nil {
						return fmt.Errorf("%s, %s, %s images: %w", kind, layout, images, err)
					}
					r.visits = append(r.visits, seen...)
				}
				fmt.Fprintf(progress, "visits: %s, %s, %s images: %s per node\n", kind, layout, images, r.perNode().Round(10*time.Millisecond))
				results = append(results, r)
			}
		}
	}
	if _, err := io.WriteString(out, formatTable(results)); err != nil {
		return err
	}
	return checkBounds(results)
}
