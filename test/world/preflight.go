// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

// stepPreflight lets the packages of a node say what it needs, all at once. Some say nothing, have no preflight, or are wrong. In the end
// nothing is against the work.
func (r *Run) stepPreflight(p *corev1.Pod, random *rand.Rand) {
	kubelet.Create(p)
	for i := kubelet.Next(p); i >= 0; i = kubelet.Next(p) {
		said, outcome, code := r.newAnswer(random), pack.Succeeded, int32(0)
		if random.IntN(6) == 0 {
			said, outcome, code = nil, pack.Failed, 1
		}
		m := pack.Message{Mode: pack.ModePreflight, Outcome: outcome, Package: "p", Preflight: said}
		kubelet.End(p, i, code, string(m.Encode()), r.now)
	}
	r.writeStatus(Pods, p)
}

// newAnswer returns what a package says, and declares.
func (r *Run) newAnswer(random *rand.Rand) *pack.Preflight {
	may := []pack.Privileges{nil, {"services"}, {"sysctl"}, {"/etc/a"}}
	said := &pack.Preflight{Answer: pack.Answers()[random.IntN(len(pack.Answers()))], Reason: "it is so", Privileges: may[random.IntN(len(may))]}
	switch {
	case r.isQuiet && said.Answer == pack.AnswerBlocked:
		said.Answer = pack.AnswerNone
	case said.Answer == pack.AnswerService:
		said.Services = []string{"a"}
	case said.Answer == pack.AnswerNone && random.IntN(3) == 0:
		said.Wrong = true
	case random.IntN(6) == 0:
		return &pack.Preflight{Absent: true, Privileges: said.Privileges}
	}
	return said
}

// checkNewPreflight: a pod that looks what a node needs is there before the visit, or after it, and can change nothing.
func (r *Run) checkNewPreflight(c content) {
	p := decode(c, &corev1.Pod{})
	for of := range r.truth.admitted[r.uidOf(nodeKey(p.Spec.NodeName))] {
		if r.truth.admitted[r.uidOf(nodeKey(p.Spec.NodeName))][of] && r.hasSkyhook(of) {
			r.violate("preflights disturb nobody", "%s looks at node %s, on which %s works", p.Name, p.Spec.NodeName, of)
		}
	}
	for _, c := range p.Spec.Containers {
		for _, m := range c.VolumeMounts {
			if m.MountPath == "/root" && (!m.ReadOnly || m.RecursiveReadOnly == nil || *m.RecursiveReadOnly != corev1.RecursiveReadOnlyEnabled) || c.SecurityContext.Privileged != nil || p.Spec.HostPID {
				r.violate("preflights disturb nobody", "container %s of %s can change the host", c.Name, p.Name)
			}
		}
	}
}
