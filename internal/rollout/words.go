// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "unicode/utf8"

// MaxText is the most bytes of a sentence.
const MaxText = 400

// Shorten shortens a text that is too long for status and events.
func Shorten(s string) string { return Truncate(s, MaxText) }

// Truncate shortens a text to a number of bytes.
func Truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// WithDefaultReason completes a reason from the snapshot, so that every verdict has a reason and a text.
func WithDefaultReason(given *Why, otherwise Reason) Why {
	why := Why{Reason: otherwise}
	if given != nil {
		why = *given
	}
	if why.Reason == "" {
		why.Reason = otherwise
	}
	if why.Text == "" {
		why.Text = "the reason is " + string(why.Reason) + "; no details are known"
	}
	why.Text = Shorten(why.Text)
	return why
}
