// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"io"
	"slices"
	"strings"
)

// Redacted replaces a secret.
const Redacted = "***"

// minSecret is the minimum length of a redacted value. Shorter ones occur by chance everywhere and protect nothing.
const minSecret = 4

// Redactor removes secrets from text. A nil Redactor removes nothing.
type Redactor struct {
	secrets []string
	replace *strings.Replacer
}

// NewRedactor creates a Redactor for these values, and for each line of values with several lines.
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
	// The longest first, because a secret may be part of another one.
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	var pairs []string
	for _, s := range secrets {
		pairs = append(pairs, s, Redacted)
	}
	return &Redactor{secrets: secrets, replace: strings.NewReplacer(pairs...)}
}

// Replace replaces the secrets in s.
func (r *Redactor) Replace(s string) string {
	if r == nil || len(r.secrets) == 0 {
		return s
	}
	return r.replace.Replace(s)
}

// Writer redacts what is written to w. Every write must consist of whole lines.
func (r *Redactor) Writer(w io.Writer) io.Writer { return redactingWriter{r, w} }

type redactingWriter struct {
	redact *Redactor
	to     io.Writer
}

func (w redactingWriter) Write(b []byte) (int, error) {
	if _, err := io.WriteString(w.to, w.redact.Replace(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (r *Redactor) longestSecret() int {
	if r == nil || len(r.secrets) == 0 {
		return 0
	}
	return len(r.secrets[0])
}
