// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/internal/cli/manifest"
	"github.com/skyhook-k8s/skyhook/internal/migrate"
)

// What happens to the target of an object.
const (
	actionCreate = "create"
	actionUpdate = "update"
	actionSkip   = "moved before"
)

// objectMove is one object of the one side and what becomes of it on the other.
type objectMove struct {
	original, target *unstructured.Unstructured // target is nil when there is none yet
	wanted           *unstructured.Unstructured
	action           string
	gaps             []migrate.Gap
}

func (o *objectMove) isPolicy() bool {
	return o.original.GetKind() == migrate.NodeWright.PolicyGVK().Kind
}

// plan decides what happens to each object and each node.
func (m *migration) plan() error {
	reviewed := map[string]*unstructured.Unstructured{}
	if m.apply && m.directory != "" {
		var err error
		if reviewed, err = readReviewed(m.directory); err != nil {
			return err
		}
	}
	var errs []error
	for _, o := range m.originals {
		move, err := m.planObject(o, reviewed)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		m.moves = append(m.moves, move)
		if move.action != actionSkip {
			m.gaps = append(m.gaps, move.gaps...)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := m.chooseTaints(); err != nil {
		return err
	}
	return m.planNodes()
}

func (m *migration) planObject(o *unstructured.Unstructured, reviewed map[string]*unstructured.Unstructured) (*objectMove, error) {
	move := &objectMove{original: o}
	move.wanted, move.gaps = m.direction.Convert(o)
	name := kindAndName(move.wanted)
	move.target = m.targets[name]
	if r := reviewed[name]; r != nil {
		move.wanted, move.gaps = r, nil
	} else if m.apply && m.directory != "" {
		return nil, fmt.Errorf("%s has no manifest of %s: write it again without --apply, or leave --directory out", m.directory, name)
	}
	if !m.back {
		if err := validateConverted(move.wanted); err != nil {
			return nil, err
		}
	}
	switch t := move.target; {
	case t == nil:
		move.action = actionCreate
	case m.direction.IsMigrated(t, o) && !m.again:
		move.action = actionSkip
	case m.back, m.again, m.direction.IsMigrating(t), m.direction.IsMigrated(t, o), migrate.IsMirrorOf(o), contains(t.Object["spec"], move.wanted.Object["spec"]):
		move.action = actionUpdate
	default:
		return nil, fmt.Errorf("%s exists, and differs from what %s becomes: delete it, or make them equal", name, kindAndName(o))
	}
	return move, nil
}

// contains reports whether everything in want is in have. Defaults that the API server adds do not matter.
func contains(have, want any) bool {
	wanted, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(have, want)
	}
	fields, _ := have.(map[string]any)
	for key, value := range wanted {
		if !contains(fields[key], value) {
			return false
		}
	}
	return true
}

// validateConverted checks a converted object with the rules of our CRDs.
func validateConverted(o *unstructured.Unstructured) error {
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		return fmt.Errorf("writing %s: %w", kindAndName(o), err)
	}
	validator, err := manifest.Load()
	if err != nil {
		return err
	}
	objects, err := validator.Read(kindAndName(o), bytes.NewReader(text))
	if err != nil {
		return err
	}
	for _, v := range objects {
		problems := v.Problems
		for _, field := range v.UnknownFields {
			problems = append(problems, "unknown field "+field)
		}
		if len(problems) > 0 {
			return fmt.Errorf("%s would not be valid: %s; correct the original", kindAndName(o), strings.Join(problems, "; "))
		}
	}
	return nil
}

// manifestFile is the name of an object's manifest.
func manifestFile(o *unstructured.Unstructured) string {
	return strings.ToLower(o.GetKind()) + "-" + o.GetName() + ".yaml"
}

// manifestText is an object as a manifest, with what is lost as comments.
func manifestText(o *unstructured.Unstructured, gaps []migrate.Gap) ([]byte, error) {
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", kindAndName(o), err)
	}
	head := ""
	for _, g := range gaps {
		head += "# " + g.Field + ": " + g.Text + "\n"
	}
	return append([]byte(head), text...), nil
}

// writeReview writes the manifests to the directory. A file that differs was edited, and stays.
func (m *migration) writeReview() (written []string, err error) {
	if !m.DryRun {
		if err := os.MkdirAll(m.directory, 0o750); err != nil {
			return nil, err
		}
	}
	var errs []error
	for _, move := range m.moves {
		text, err := manifestText(move.wanted, move.gaps)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(m.directory, manifestFile(move.wanted))
		is, err := os.ReadFile(file)
		switch {
		case err == nil && !bytes.Equal(is, text):
			errs = append(errs, fmt.Errorf("%s differs from what would be written: move it away to write it again", file))
			continue
		case err == nil:
		case !errors.Is(err, os.ErrNotExist):
			errs = append(errs, err)
			continue
		case !m.DryRun:
			if err := os.WriteFile(file, text, 0o600); err != nil {
				return nil, err
			}
		}
		written = append(written, file)
	}
	return written, errors.Join(errs...)
}

// readReviewed reads the manifests of a directory, by kind and name.
func readReviewed(directory string) (map[string]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no manifests: write them with --directory and without --apply", directory)
	}
	slices.Sort(files)
	out := map[string]*unstructured.Unstructured{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(raw, &o.Object); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		out[kindAndName(o)] = o
	}
	return out, nil
}
