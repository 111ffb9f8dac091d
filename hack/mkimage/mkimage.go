// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Mkimage builds the images of this repository as OCI archives, and pushes them when asked to. It needs Go and no
// container engine:
//
//	go run ./hack/mkimage --only agent,packages --version v1.0.0 --push registry.example.org/skyhook
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/skyhook-k8s/skyhook/internal/image"
	"github.com/skyhook-k8s/skyhook/internal/published"
)

// settings are the command line, checked.
type settings struct {
	module    string
	out       string
	only      []string
	version   string
	revision  string
	prefix    string
	push      string
	format    string
	plainHTTP bool
	platforms []v1.Platform
	created   time.Time
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, env func(string) string, out, progress io.Writer) error {
	set, err := newSettings(args, env, progress)
	if err != nil {
		return err
	}
	m, err := newImageBuilder(set, progress)
	if err != nil {
		return err
	}
	defer m.close()
	return m.buildAll(ctx, out)
}

func newSettings(args []string, env func(string) string, usage io.Writer) (settings, error) {
	var set settings
	var only, platforms string
	f := flag.NewFlagSet("mkimage", flag.ContinueOnError)
	f.SetOutput(usage)
	f.StringVar(&set.module, "module", ".", "the root `folder` of this repository")
	f.StringVar(&set.out, "out", "dist/images", "the `folder` for the archives and digests.txt")
	f.StringVar(&only, "only", "", "build these `images` alone: "+strings.Join(productNames(), ", ")+", packages/NAME; separated by commas")
	f.StringVar(&set.version, "version", "dev", "the `tag` of the images; packages have their own version")
	f.StringVar(&set.revision, "revision", "", "the `commit` the images are built from, for their label")
	f.StringVar(&set.prefix, "prefix", published.Images, "the `repository` above the images, for the names in archives")
	f.StringVar(&set.push, "push", "", "push to this `repository`, as REPOSITORY/operator:VERSION and so on; implies --prefix")
	f.BoolVar(&set.plainHTTP, "plain-http", false, "push to a registry without TLS")
	f.StringVar(&platforms, "platform", "linux/amd64,linux/arm64", "build for these `platforms`")
	f.StringVar(&set.format, "format", "archive", "`archive`: NAME.tar; layout: a folder NAME")
	if err := f.Parse(args); err != nil {
		return set, err
	}
	if f.NArg() > 0 {
		return set, fmt.Errorf("argument %q is not understood; --only names the images to build", f.Arg(0))
	}
	if only != "" {
		set.only = strings.Split(only, ",")
	}
	return set, errors.Join(set.validate(platforms), set.setCreated(env("SOURCE_DATE_EPOCH")))
}

var tag = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

func (set *settings) validate(platforms string) error {
	if !tag.MatchString(set.version) {
		return fmt.Errorf("--version %q cannot be a tag; use letters, digits, dot, dash and underscore", set.version)
	}
	if set.format != "archive" && set.format != "layout" {
		return fmt.Errorf("--format %q is not known; write archive or layout", set.format)
	}
	for _, name := range set.only {
		if !slices.Contains(productNames(), name) && path.Dir(name) != "packages" {
			return fmt.Errorf("--only %q is none of %s, packages/NAME", name, strings.Join(productNames(), ", "))
		}
	}
	if set.push != "" {
		set.prefix = strings.TrimSuffix(set.push, "/")
	}
	if _, err := (image.Registry{PlainHTTP: set.plainHTTP}).Reference(set.prefix + "/agent:" + set.version); err != nil {
		return err
	}
	for text := range strings.SplitSeq(platforms, ",") {
		p, err := v1.ParsePlatform(text)
		if err != nil || p.OS == "" || p.Architecture == "" {
			return fmt.Errorf("--platform %q is not understood; write linux/amd64", text)
		}
		set.platforms = append(set.platforms, *p)
	}
	return nil
}

// setCreated is the time that everything in an image bears.
func (set *settings) setCreated(epoch string) error {
	seconds, err := strconv.ParseInt(cmp.Or(epoch, "0"), 10, 64)
	if err != nil || seconds < 0 || seconds > 1<<33-1 {
		return fmt.Errorf("SOURCE_DATE_EPOCH %q is not a number of seconds since 1970", epoch)
	}
	set.created = time.Unix(seconds, 0)
	return nil
}
