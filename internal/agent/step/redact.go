// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"io"
	"slices"
	"strings"
)

// Redacted stands where a secret was.
const Redacted = "***"

// minSecret is the shortest value that is taken out: shorter ones occur everywhere by chance, and protect nothing.
const minSecret = 4

// A Redactor takes secrets out of text. A nil one takes nothing out.
type Redactor struct {
	secrets []string
	replace *strings.Replacer
}

// NewRedactor makes a Redactor for these values, and for each line of those that have several.
func NewRedactor(values []string) *Redactor {
	var secrets []string
	add := func(s string) {
		if len(s) >= minSecret && !slices.Contains(secrets, s) {
			secrets = append(secrets, s)
		}
	}
	for _, v := range values {
		add(v)
		for line := range strings.Lines(v) {
			add(strings.Trim(line, " \t\r\n"))
		}
	}
	// The longest first, so that a secret within another does not leave the other's rest.
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	var pairs []string
	for _, s := range secrets {
		pairs = append(pairs, s, Redacted)
	}
	return &Redactor{secrets: secrets, replace: strings.NewReplacer(pairs...)}
}

// Replace is s without the secrets.
func (r *Redactor) Replace(s string) string {
	if r == nil || len(r.secrets) == 0 {
		return s
	}
	return r.replace.Replace(s)
}

// Writer passes what is written on without the secrets. Every write must hold whole lines.
func (r *Redactor) Writer(w io.Writer) io.Writer { return redacting{r, w} }

type redacting struct {
	redact *Redactor
	to     io.Writer
}

func (w redacting) Write(b []byte) (int, error) {
	if _, err := io.WriteString(w.to, w.redact.Replace(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (r *Redactor) longest() int {
	if r == nil || len(r.secrets) == 0 {
		return 0
	}
	return len(r.secrets[0])
}
