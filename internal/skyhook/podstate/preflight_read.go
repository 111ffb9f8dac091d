// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// maxAnswerText is the most bytes of the reason of an answer that are recorded.
const maxAnswerText = 200

// ReadAnswer returns what a package said in its container. Without an answer its reason says why there is none.
func ReadAnswer(p *corev1.Pod, name string) pack.Preflight {
	at := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if at < 0 {
		return noAnswer("its preflight did not start: " + p.Status.Reason + " " + p.Status.Message)
	}
	state := p.Status.ContainerStatuses[at].State
	switch {
	case state.Terminated == nil && state.Waiting != nil:
		return noAnswer("its preflight did not start: " + state.Waiting.Reason + " " + state.Waiting.Message)
	case state.Terminated == nil:
		return noAnswer("its preflight did not end in time")
	}
	m, isOurs := pack.DecodeMessage(state.Terminated.Message)
	switch {
	case isOurs && m.Outcome == pack.Succeeded && m.Preflight != nil && m.Preflight.IsKnown():
		m.Preflight.Reason = node.Truncate(m.Preflight.Reason, maxAnswerText)
		return *m.Preflight
	case state.Terminated.ExitCode == 0: // an agent that does not know the mode does nothing for it
		return pack.Preflight{Absent: true}
	}
	out := noAnswer(failureText(name, state.Terminated))
	if isOurs && m.Preflight != nil {
		out.Privileges = m.Preflight.Privileges
	}
	return out
}

// ReadDriftAnswer returns what a package says of a node that needed nothing; nothing if that is still so.
func ReadDriftAnswer(p *corev1.Pod, name string) node.PackageDrift {
	switch a := ReadAnswer(p, name); {
	case a.Answer == "":
		return node.PackageDrift{NotCheckable: true, Text: a.Reason}
	case a.Answer == pack.AnswerNone && !a.Wrong:
		return node.PackageDrift{}
	default:
		return node.PackageDrift{Text: "it needed nothing, and says " + string(a.Answer) + " now: " + a.Reason, Repair: string(v1alpha1.StageApply)}
	}
}

func noAnswer(text string) pack.Preflight {
	return pack.Preflight{Reason: node.Truncate(strings.TrimRight(strings.TrimSpace(text), ":"), maxAnswerText)}
}
