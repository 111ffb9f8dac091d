// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// PreflightAge is how long an answer counts before a node's turn, PreflightTimeout how long the steps of a package may look, and
// PreflightPodTimeout how long the pod of a node may take.
const (
	PreflightAge        = 10 * time.Minute
	PreflightTimeout    = 5 * time.Minute
	PreflightPodTimeout = 7 * time.Minute
)

// Asks reports whether packages may say how much of their work nodes need.
func (f *Facts) Asks() bool { return f.Skyhook.Spec.Preflight == v1alpha1.PreflightAsk && !f.Deleting }

// readNodes returns the definitions that have no preflight, as the nodes that were asked say, and what packages declare, by their images.
// Where nodes disagree, the strongest counts: what runs with more than it needs works.
func (f *Facts) readNodes(nodes []*node.Node) (silent map[string]bool, declared map[string]pack.Privileges) {
	if !f.Asks() {
		return nil, nil
	}
	silent, declared = map[string]bool{}, map[string]pack.Privileges{}
	for _, n := range nodes {
		rec := &n.Skyhook(f.Skyhook.Name).Record
		for _, a := range rec.Preflight {
			def := f.Definition(a.Hash)
			if def == nil || rec.Node != n.UID || rec.Skyhook != string(f.Skyhook.UID) || !a.HasPrivileges() {
				continue
			}
			image := ImageOf(def.Package)
			if known, isKnown := declared[image]; !isKnown || pack.CompareClasses(a.Privileges.Class(), known.Class()) > 0 {
				declared[image] = a.Privileges
			}
			if a.Absent {
				silent[a.Hash] = true
			}
		}
	}
	return silent, declared
}

// answerOf returns what a package said that it needs on the node; nil if nothing of that counts. During an admission that counts which was
// known when it began.
func (w *Diff) answerOf(want *Definition) *node.Answer {
	a, isKnown := w.Rec.Preflight[want.Key()]
	isOfNow := w.Rec.Admitted || a.Boot == w.N.BootID
	if !isKnown || !isOfNow || !w.facts.Asks() || w.wanted.IsBack || !isUseful(a, want) {
		return nil
	}
	return &a
}

// isUseful reports whether an answer says of a definition what it needs.
func isUseful(a node.Answer, of *Definition) bool {
	return a.Hash == of.Hash && !a.Wrong && a.Answer != "" && a.Answer != pack.AnswerBlocked
}

// lessen returns what a package needs of its interrupt on the node. It never gets a stronger one.
func (w *Diff) lessen(declared *v1alpha1.Interrupt, want *Definition) *v1alpha1.Interrupt {
	if a := w.answerOf(want); a != nil {
		return lessen(declared, a)
	}
	return declared
}

func lessen(declared *v1alpha1.Interrupt, a *node.Answer) *v1alpha1.Interrupt {
	needed := declared
	switch a.Answer {
	case pack.AnswerNone, pack.AnswerConfig, pack.AnswerApply:
		return nil
	case pack.AnswerService:
		needed = Normalised(&v1alpha1.Interrupt{Type: v1alpha1.InterruptService, Services: a.Services})
	}
	if declared != nil && CoversInterrupt(declared, needed) {
		return needed
	}
	return declared
}

// firstStage returns with which stage a package begins that would begin with apply: with config if that is enough, and no other version is
// to be replaced.
func (w *Diff) firstStage(want *Definition) v1alpha1.Stage {
	a := w.answerOf(want)
	isOther := slices.ContainsFunc(w.Entries[want.Package.Name], func(e Entry) bool { return e.key != want.Key() })
	if a != nil && a.Answer == pack.AnswerConfig && !isOther {
		return v1alpha1.StageConfig
	}
	return v1alpha1.StageApply
}

// continueAsAnswered changes which stages are left of a finished package: apply if more is needed for another configMap than config, and not
// apply if config is enough.
func (w *Diff) continueAsAnswered(then continuation, want *Definition) continuation {
	a := w.answerOf(want)
	switch {
	case a == nil:
	case then.start == v1alpha1.StageApply:
		then.start = w.firstStage(want)
	case then.goal == node.GoalConfig && a.Answer.Compare(pack.AnswerConfig) > 0:
		return continuation{start: v1alpha1.StageApply, goal: node.GoalInstall}
	}
	return then
}

// PackagesToAsk returns the packages that say how much of their work a node needs, by name|version: before its turn those that have
// not begun, and once all is done those that did less than their definition says, which now need nothing if that was right.
func (f *Facts) PackagesToAsk(t *Target) map[string]*Definition {
	if !f.Asks() || !t.Selected || t.Record.Admitted || !t.Node.MountsReadOnly || t.Wanted.IsBack || f.HasRolledBack(&t.Record) {
		return nil
	}
	out := map[string]*Definition{}
	if len(t.Steps) == 0 {
		for key, a := range t.Record.Preflight {
			if def := f.finishedWithLess(t, key, a); def != nil {
				out[key] = def
			}
		}
		return out
	}
	for _, st := range t.Steps {
		if f.mayAsk(t, st) {
			out[st.Key] = st.Definition
		}
	}
	return out
}

func (f *Facts) keyOfWanted(name string) string {
	if want := f.Packages[name]; want != nil {
		return want.Key()
	}
	return ""
}

// mayAsk reports whether the package of a step may say how much of its work the node needs.
func (f *Facts) mayAsk(t *Target, st *Step) bool {
	want := f.Packages[st.Name]
	if want == nil || st.Key != want.Key() || st.Definition.Hash != want.Hash || f.Silent[want.Hash] {
		return false
	}
	p, a := t.Record.Packages[st.Key], t.Record.Preflight[st.Key]
	isBegun := p != nil && p.Goal != ""
	return !isBegun && !(a.Hash == want.Hash && a.Wrong)
}

// finishedWithLess returns the definition of a finished package that did less than that says, and has not been asked since; nil for none.
func (f *Facts) finishedWithLess(t *Target, key string, a node.Answer) *Definition {
	p := t.Record.Packages[key]
	if p == nil || p.Goal != "" || p.Kept {
		return nil
	}
	if def := f.Definition(p.Hash); def != nil && a.Answer != pack.AnswerNone && isLess(a, def) {
		return def
	}
	return nil
}

// IsRightByAnswer reports whether a finished package, given as name|version, never ran on a node, because it said that nothing is needed:
// the host has no record of it that could be checked.
func (f *Facts) IsRightByAnswer(t *Target, key string) bool {
	p, a := t.Record.Packages[key], t.Record.Preflight[key]
	return f.Asks() && t.Node.MountsReadOnly && p != nil && p.Generation == 0 && len(p.Done) == 0 && a.Hash == p.Hash && a.Answer == pack.AnswerNone && !a.Wrong
}

// isLess reports whether a package does less than its definition says because of an answer.
func isLess(a node.Answer, of *Definition) bool {
	declared := Normalised(of.Package.Interrupt)
	return isUseful(a, of) && (a.Answer == pack.AnswerConfig || !SameInterrupt(lessen(declared, &a), declared))
}

// IsAnswerWrong reports whether a check of a package failed after less than its definition says.
func (f *Facts) IsAnswerWrong(t *Target, st *Step) bool {
	if t == nil || !f.Asks() || !isLess(t.Record.Preflight[st.Key], st.Definition) {
		return false
	}
	pod := FindPod(t.Pods.Work, NewEntry(st.Key, t.On.State[st.Key], t.Record.Packages[st.Key]))
	return pod != nil && pod.CheckFailed
}

// AnswersUntil returns until when what packages said of a node counts before its turn; zero if one of them has not been asked.
func (f *Facts) AnswersUntil(t *Target, asked map[string]*Definition) (until time.Time) {
	for key, def := range asked {
		a, isKnown := t.Record.Preflight[key]
		if !isKnown || a.Hash != def.Hash || a.Boot != t.Node.BootID || len(t.Steps) == 0 {
			return time.Time{}
		}
		if end := a.At.Add(PreflightAge); until.IsZero() || end.Before(until) {
			until = end
		}
	}
	return until
}

// FindBlocked returns the first package whose answer is that the node must not be worked on; empty for none.
func (f *Facts) FindBlocked(t *Target, asked map[string]*Definition) (name string, a node.Answer) {
	for _, key := range SortedNames(asked) {
		if a := t.Record.Preflight[key]; a.Answer == pack.AnswerBlocked && a.Hash == asked[key].Hash && a.Boot == t.Node.BootID {
			return asked[key].Package.Name, a
		}
	}
	return "", node.Answer{}
}

// CurrentAnswers returns the answers that count for an admission: those of this boot and of a moment ago, and those that say that less than
// everything is not enough, or is not offered.
func CurrentAnswers(answers map[string]node.Answer, boot string, now time.Time) map[string]node.Answer {
	out := map[string]node.Answer{}
	for key, a := range answers {
		isOfNow := a.Boot == boot && now.Before(a.At.Add(PreflightAge))
		if isOfNow || a.Wrong || a.Absent {
			out[key] = a
		}
	}
	return out
}

// ReadAnswers returns what the packages of a node said in a pod; nil for one that is gone. What a package says that waits for the work of
// another one does not count: that may change what it needs.
func (f *Facts) ReadAnswers(t *Target, pod *corev1.Pod) map[string]node.Answer {
	out, asked := map[string]node.Answer{}, f.PackagesToAsk(t)
	for key, def := range asked {
		a := node.Answer{Hash: def.Hash, At: node.WholeSeconds(f.Now), Boot: t.Node.BootID, Preflight: pack.Preflight{Reason: "its preflight is gone"}}
		if pod != nil {
			a.Preflight = podstate.ReadAnswer(pod, PreflightContainer(key))
		}
		out[key] = a
	}
	ignore := func(key, why string) {
		if a, isAsked := out[key]; isAsked {
			a.Preflight = pack.Preflight{Reason: why, Privileges: a.Privileges}
			out[key] = a
		}
	}
	for _, st := range t.Steps {
		if st.IsUninstall() {
			ignore(f.keyOfWanted(st.Name), "another version of it is uninstalled first")
		}
	}
	working := map[string]bool{}
	for _, st := range t.Steps {
		working[st.Name] = true
	}
	for key, a := range out {
		if a.Answer == pack.AnswerNone && !a.Wrong {
			delete(working, asked[key].Package.Name)
		}
	}
	WalkDependencies(SortedNames(f.Packages), func(name string) []string { return f.Packages[name].DependenciesAmong(f.Packages) }, func(name string, dependencies []string) {
		key := f.Packages[name].Key()
		a, isAsked := out[key]
		for _, on := range dependencies {
			if isAsked && working[on] && a.Answer != "" && a.Answer != pack.AnswerBlocked {
				working[name] = true
				ignore(key, "it depends on "+on+", which has work on the node")
				a = out[key]
			}
		}
	})
	return out
}

// ProveAnswers changes answers of packages that have done less than their definitions say: what needs something now was wrong.
func ProveAnswers(answers map[string]node.Answer) {
	for key, a := range answers {
		if a.Answer != "" && a.Answer != pack.AnswerNone {
			a.Wrong, a.Reason = true, "after less than all of its work it says "+string(a.Answer)+": "+a.Reason
			answers[key] = a
		}
	}
}

// NeedNothing reports whether the packages that have work on a node all say that it needs nothing.
func NeedNothing(t *Target, answers map[string]node.Answer) bool {
	for _, st := range t.Steps {
		if a := answers[st.Key]; a.Answer != pack.AnswerNone || a.Wrong {
			return false
		}
	}
	return true
}

// PreflightPodName returns the name of the pod that asks packages on a node next.
func (f *Facts) PreflightPodName(t *Target, asked map[string]*Definition) string {
	parts := []string{t.Node.BootID}
	for _, key := range SortedNames(asked) {
		parts = append(parts, key, asked[key].Hash, t.Record.Preflight[key].At.UTC().Format(time.RFC3339))
	}
	return SafeName(MaxPodName, f.Skyhook.Name, "preflight", t.Node.Name, HashID(parts...))
}

// PreflightContainer returns the name of the container that asks a package, given as name|version.
func PreflightContainer(key string) string {
	name, version, _ := CutKey(key)
	return SafeName(63, PackageName(name), "preflight", version)
}
