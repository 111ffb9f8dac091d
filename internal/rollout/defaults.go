// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "strings"

// LastOutput is what the text of a failure has before what its program printed last.
const LastOutput = "; last output: "

// Defaults are what decided where an object leaves a field out, by the reasons for which targets wait or fail because of it.
type Defaults map[Reason]string

// Explain adds to a reason what decided it, once; nothing if an object did.
func (d Defaults) Explain(why *Why) {
	by := d[why.Reason]
	if by == "" || strings.Contains(why.Text, by) {
		return
	}
	by = " (" + by + ")"
	text, printed, _ := strings.Cut(why.Text, LastOutput)
	text = Truncate(text, MaxText-len(by)) + by
	if printed != "" {
		text += LastOutput + printed
	}
	why.Text = Shorten(text)
}
