// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnswers(t *testing.T) {
	for text, want := range map[string]Preflight{
		"none: all is there\n":                        {Answer: AnswerNone, Reason: "all is there"},
		"config: a: b":                                {Answer: AnswerConfig, Reason: "a: b"},
		"\n  apply: it is new\r\n\n":                  {Answer: AnswerApply, Reason: "it is new"},
		"none: a\nreboot: b\nconfig: c\n":             {Answer: AnswerReboot, Reason: "b"},
		"service a@b:c.service, b: x":                 {Answer: AnswerService, Services: []string{"a@b:c.service", "b"}, Reason: "x"},
		"service a,b: x\nservice b,c: y\napply: z":    {Answer: AnswerService, Services: []string{"a", "b", "c"}, Reason: "x; y"},
		"service a: x\nreboot: y\nservice b: z":       {Answer: AnswerReboot, Reason: "y"},
		"blocked: in use\nreboot: y\nblocked: in use": {Answer: AnswerBlocked, Reason: "in use"},
	} {
		got, err := ParseAnswers(text)
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                    "no step has answered: append a line to the file that SKYHOOK_ANSWER names; a line is",
		"\n\n":                "no step has answered",
		"none":                `the answer "none" has no reason after a colon and a space; a line is "none: REASON"`,
		"none:":               "has no reason",
		"none:reason":         "does not begin with a known word",
		"rebot: x":            `does not begin with a known word (did you mean "reboot"?)`,
		"none: fine\nyes":     `the answer "yes" does not begin`,
		"reboot kubelet: x":   "names something before the colon, which only service does",
		"service: x":          "names a service wrongly: it is empty",
		"service a,,b: x":     "names a service wrongly: it is empty",
		"service a b: x":      `names a service wrongly: "a b" is not the name`,
		"service kubelet:new": "has no reason",
		"service " + strings.Repeat("a,", 200) + strings.Repeat("b", 201) + ": x": "the answers name services of more than 200 bytes: name fewer, or answer reboot",
	} {
		if _, err := ParseAnswers(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want %s", text, err, want)
		}
	}
}

func TestAnswersAreOrdered(t *testing.T) {
	all := Answers()
	if !slices.IsSortedFunc(all, Answer.Compare) || all[0] != AnswerNone || all[len(all)-1] != AnswerBlocked || Answer("").Compare(AnswerNone) >= 0 {
		t.Error(all)
	}
	all[0] = "changed"
	if Answers()[0] != AnswerNone {
		t.Error("the list can be changed from outside")
	}
}

// TestMessageOfPreflight: an answer comes back, also when the kubelet leaves little room; then only its reason becomes shorter.
func TestMessageOfPreflight(t *testing.T) {
	var units []string
	for i := range 14 {
		units = append(units, fmt.Sprintf("unit-%02d.svc", i))
	}
	long := strings.Repeat("why ", 100)
	for _, p := range []Preflight{
		{Absent: true},
		{Answer: AnswerNone, Reason: "all is there", Wrong: true},
		{Answer: AnswerNone, Reason: "all is there", Privileges: Privileges{"services", "/etc/motd.d"}},
		{Privileges: Privileges{"services"}},
		{Answer: AnswerService, Services: units, Reason: long},
	} {
		exit := 3
		m := Message{
			Mode: ModePreflight, Outcome: Succeeded, Package: strings.Repeat("p", 63), Version: strings.Repeat("1", 40), Agent: "1.0.0", Exit: &exit,
			Step: strings.Repeat("s", 80), Boot: strings.Repeat("b", 36), Ran: 3, Preflight: &p, Reason: long, Lines: []string{long},
		}
		for _, limit := range []int{MaxMessage, 600, 400} {
			out := m.EncodeWithin(limit)
			got, ok := DecodeMessage(string(out))
			if !ok || len(out) > limit || got.Preflight == nil {
				t.Fatalf("%d bytes of %d: %s", len(out), limit, out)
			}
			want := p
			if got.Preflight.Reason != p.Reason {
				want.Reason = got.Preflight.Reason
			}
			if !cmp.Equal(*got.Preflight, want) || p.Reason != "" && len(want.Reason) < min(len(p.Reason), 40) || len(want.Reason) > 200 {
				t.Errorf("%d bytes: %+v", limit, got.Preflight)
			}
		}
	}
	for _, text := range []string{`{}`, `{"answer":"perhaps"}`, `{"absent":true,"answer":"none"}`, `{"answer":"none","privileges":["all"]}`} {
		m, ok := DecodeMessage(`{"schema":"skyhook-agent/1","outcome":"succeeded","mode":"preflight","preflight":` + text + `}`)
		if !ok || m.Preflight != nil {
			t.Errorf("%s was taken for %+v", text, m.Preflight)
		}
	}
}
