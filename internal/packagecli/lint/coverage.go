// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package lint

import "github.com/skyhook-k8s/skyhook/internal/pack"

// Stage is one stage of the lifecycle with its numbers of steps and checks.
type Stage struct {
	Stage  pack.Mode `json:"stage"`
	Steps  int       `json:"steps"`
	Checks int       `json:"checks"`
	Note   string    `json:"note,omitempty"` // consequence of having none
}

// without describes the consequence of a stage without steps.
var without = map[pack.Mode]string{
	pack.ModeApply:         "a first install runs config only",
	pack.ModeConfig:        "a changed configMap changes nothing",
	pack.ModePostInterrupt: "nothing is checked after an interrupt",
	pack.ModeUpgrade:       "a rising version runs config only",
	pack.ModeUninstall:     "what the steps did stays on the host",
}

// Coverage lists the stages in order.
func Coverage(c pack.Config) []Stage {
	var out []Stage
	for _, m := range []pack.Mode{pack.ModeApply, pack.ModeConfig, pack.ModePostInterrupt, pack.ModeUpgrade, pack.ModeUninstall} {
		s := Stage{Stage: m, Steps: len(c.Steps(m)), Checks: len(c.Steps(m.Check()))}
		if s.Steps+s.Checks == 0 {
			s.Note = without[m]
		}
		out = append(out, s)
	}
	return out
}
