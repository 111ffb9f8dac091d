// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"fmt"
	"strings"
)

// Closest returns the candidate that word is most likely a typo of: at most a third of its letters, but at least two,
// may differ. It returns "" when there is none.
func Closest(word string, candidates []string) string {
	const longest = 64
	if len(word) > longest {
		return ""
	}
	best, least := "", max(2, len(word)/3)+1
	for _, c := range candidates {
		if len(c) > longest || c == word {
			continue
		}
		if d := editDistance(normalize(word), normalize(c)); d < least && d < len(c) {
			best, least = c, d
		}
	}
	return best
}

// normalize removes differences in case, dashes, underscores, dots and blanks.
func normalize(s string) string { return withoutSeparators.Replace(strings.ToLower(s)) }

var withoutSeparators = strings.NewReplacer("-", "", "_", "", ".", "", " ", "")

// editDistance counts the letters to insert, delete, replace or swap with their
// neighbour to make a into b.
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}

// SuggestWord returns a clause to append to "… is not known", or "".
func SuggestWord(word string, candidates []string) string {
	if c := Closest(word, candidates); c != "" {
		return fmt.Sprintf(" (did you mean %q?)", c)
	}
	return ""
}

// joinWords joins words as in "a, b and c".
func joinWords(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}
