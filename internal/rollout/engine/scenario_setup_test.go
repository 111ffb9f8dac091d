// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// parseWords returns the arguments of a command as they are written: key=value is one word.
func parseWords(d *datadriven.TestData) []string {
	var out []string
	for _, a := range d.CmdArgs {
		word := a.Key
		if len(a.Vals) > 0 {
			word += "=" + strings.Join(a.Vals, ",")
		}
		out = append(out, word)
	}
	return out
}

func parseLines(input string) [][]string {
	var out [][]string
	for _, line := range strings.Split(input, "\n") {
		if f := strings.Fields(line); len(f) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// splitSetting splits a word of a command into its name and the value after the = sign.
func splitSetting(word string) (name, value string) {
	name, value, _ = strings.Cut(word, "=")
	return name, value
}

func parseNumber(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(fmt.Sprintf("%q is not a number", s))
	}
	return n
}

func parseDuration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

// parseReason parses a reason: "Reason:some_text", or none.
func parseReason(s string) *rollout.Why {
	if s == "none" {
		return nil
	}
	reason, text, _ := strings.Cut(s, ":")
	return &rollout.Why{Reason: rollout.Reason(reason), Text: strings.ReplaceAll(text, "_", " ")}
}

func (s *scenario) addNode(w []string) {
	s.cluster.State.Nodes = append(s.cluster.State.Nodes, rollout.Node{
		Name: w[0], UID: "uid-" + w[0], Ready: true, Known: true, BootID: "boot-" + w[0],
		Created: time.Date(2026, 1, 1, 0, len(s.cluster.State.Nodes), 0, 0, time.UTC),
	})
	changeNode(&s.cluster.State.Nodes[len(s.cluster.State.Nodes)-1], w[1:])
}

func changeNode(n *rollout.Node, w []string) {
	for _, word := range w {
		switch name, value := splitSetting(word); name {
		case "ready":
			n.Ready = true
		case "not-ready":
			n.Ready = false
		case "cordon":
			n.Cordoned = true
		case "uncordon":
			n.Cordoned = false
		case "tainted":
			n.Tainted, n.OwnTaint = true, value == "own"
		case "new":
			n.Known = false
		case "self":
			n.Self = true
		case "refused":
			n.Refused = value != "no"
		case "sending":
			n.Sending = value != "no"
		case "uid":
			n.UID = value
		case "boot":
			n.BootID = value
		case "orphan":
			for i := range n.Holds {
				n.Holds[i].Orphan = n.Holds[i].Owner.String() == value
			}
		case "no-holds":
			n.Holds = nil
		case "hold":
			n.Holds, n.Cordoned = append(n.Holds, rollout.Hold{Owner: rollout.ParseRef(value)}), true
		default:
			panic("a node has no " + word)
		}
	}
}

// setRollout adds or changes a rollout. Tasks in the input replace those of all its targets; tasks of the same name keep
// their state.
func (s *scenario) setRollout(w []string, tasks [][]string) {
	name := parseRolloutRef(w[0])
	r := s.cluster.FindRollout(name)
	if r == nil {
		s.cluster.State.Rollouts = append(s.cluster.State.Rollouts, rollout.Rollout{Ref: name, Sequence: name.Kind, UID: "uid-" + name.String(), Priority: 200, Numbering: rollout.Numbering{Stored: name.Kind == "Skyhook"}})
		r = &s.cluster.State.Rollouts[len(s.cluster.State.Rollouts)-1]
	}
	on, group := []string(nil), name.String()
	if len(r.Targets) > 0 {
		group = r.Targets[0].Group.String()
	} else {
		for _, n := range s.cluster.State.Nodes {
			on = append(on, n.Name)
		}
	}
	for _, word := range w[1:] {
		switch key, value := splitSetting(word); key {
		case "nodes":
			on = strings.Split(value, ",")
		case "group":
			group = value
		default:
			changeRollout(r, key, value)
		}
	}
	s.findOrAddGroup(group)
	for _, node := range on {
		if !slices.ContainsFunc(r.Targets, func(t *rollout.Target) bool { return t.Node == node }) {
			t := rollout.Target{Node: node, Group: rollout.ParseGroupRef(group)}
			if n := s.cluster.FindNode(node); n != nil {
				t.UID = n.UID
			}
			if len(tasks) == 0 && len(r.Targets) > 0 {
				t.Tasks = copyPendingTasks(r.Targets[0].Tasks)
			}
			r.Targets = append(r.Targets, &t)
		}
	}
	if len(tasks) > 0 {
		for i := range r.Targets {
			r.Targets[i].Tasks = parseTasks(tasks, r.Targets[i].Tasks)
		}
	}
	s.cluster.Reindex()
}

func copyPendingTasks(tasks []rollout.Task) []rollout.Task {
	var out []rollout.Task
	for _, k := range tasks {
		out = append(out, rollout.Task{ID: k.ID, Label: k.Label, After: k.After, Need: k.Need, Strength: k.Strength, Reboot: k.Reboot,
			State: rollout.StatePending, Recorded: rollout.StatePending, Retries: k.Retries, Bounded: k.Bounded, Limit: k.Limit, Uninstall: k.Uninstall, Exclusive: k.Exclusive, Joins: k.Joins, JoinsSiblings: k.JoinsSiblings})
	}
	return out
}

func changeRollout(r *rollout.Rollout, key, value string) {
	yes := value != "no"
	switch key {
	case "priority":
		r.Priority = parseNumber(value)
	case "barrier":
		r.Barrier = yes
	case "paused":
		r.Paused = yes
	case "disabled":
		r.Paused, r.Yields = yes, yes
	case "deleting":
		r.Deleting = yes
	case "broken":
		r.Broken = parseReason(value)
	case "serial":
		r.Serial = yes
	case "required":
		r.Taint.Required = yes
	case "autotaint":
		r.Taint.Required, r.Taint.NewNodes = yes, yes
	case "cordon-after":
		r.Taint.Required, r.Taint.CordonAfter = yes, yes
	case "once":
		r.Once = yes
	case "takes-back":
		r.Rollback.Together = yes
	case "went-back":
		r.Rollback.Cause = parseReason(value)
	case "keep-held":
		r.KeepHeld = yes
	case "drift":
		r.CheckLimit = parseNumber(value)
	case "drain":
		after, what, _ := strings.Cut(value, ",")
		r.Drain.Timeout, r.Drain.OnTimeout = parseDuration(after), rollout.DrainTimeout(what)
	case "asks":
		r.Handover = parseHandover(value)
	case "wait-first":
		r.Drain.WaitFirst = yes
	case "wait":
		after, what, _ := strings.Cut(value, ",")
		r.Drain.WaitTimeout, r.Drain.OnWaitTimeout = parseDuration(after), rollout.DrainTimeout(what)
	case "by-priority":
		r.Drain.ByPriority = yes
	case "load-balancers":
		r.Drain.LoadBalancerDelay = parseDuration(value)
	case "announce":
		r.Announce = yes
	case "by-default":
		r.Defaults = parseDefaults(value)
	case "shares-reboots":
		r.SharesReboots = yes
	default:
		panic("a rollout has no " + key)
	}
}

// parseHandover parses who is asked, such as "slurm:30m:Skip,ops".
func parseHandover(value string) (out []rollout.HandoverStep) {
	for step := range strings.SplitSeq(value, ",") {
		name, rest, _ := strings.Cut(step, ":")
		timeout, what, _ := strings.Cut(rest, ":")
		s := rollout.HandoverStep{Name: name, OnTimeout: rollout.DrainTimeout(what)}
		if timeout != "" {
			s.Timeout = parseDuration(timeout)
		}
		out = append(out, s)
	}
	return out
}

// parseAnswer parses what the step says that is asked: "yes", "gone" where its object does not exist, or why not.
func parseAnswer(before *rollout.Handover, value string) *rollout.Handover {
	h := *before
	h.Missing, h.Absent = nil, value == "gone"
	if value != "yes" {
		h.Missing = &rollout.Why{Text: strings.ReplaceAll(value, "_", " ")}
	}
	return &h
}

// parseDefaults parses the reasons that a profile decided, such as "Proof,RolledBack".
func parseDefaults(value string) rollout.Defaults {
	out := rollout.Defaults{}
	for reason := range strings.SplitSeq(value, ",") {
		out[rollout.Reason(reason)] = "by default"
	}
	return out
}

// parseTasks parses tasks from lines such as "driver/interrupt alone=2 after=driver/config".
func parseTasks(tasks [][]string, before []rollout.Task) []rollout.Task {
	var out []rollout.Task
	for _, w := range tasks {
		k := rollout.Task{ID: w[0], Label: strings.ReplaceAll(w[0], "/", " "), State: rollout.StatePending, Recorded: rollout.StatePending}
		for i := range before {
			if before[i].ID == k.ID {
				k = before[i]
				k.After = nil
			}
		}
		changeTask(&k, w[1:])
		out = append(out, k)
	}
	return out
}

func changeTask(k *rollout.Task, w []string) {
	for _, word := range w {
		switch key, value := splitSetting(word); key {
		case "after":
			k.After = strings.Split(value, ",")
		case "drained":
			k.Need = rollout.NeedDrained
		case "alone":
			k.Need, k.Strength = rollout.NeedAlone, parseNumber(value)
		case "reboot":
			k.Reboot = true
		case "uninstall":
			k.Uninstall = true
		case "limit":
			k.Limit = parseDuration(value)
		case "retries":
			k.Retries, k.Bounded = parseNumber(value)+1, true
		case "boot":
			k.BootID = value
		case "state":
			k.State, k.Lost = rollout.State(value), false
		case "recorded":
			k.Recorded = rollout.State(value)
		case "object":
			k.Object.Name = value
		case "attempts":
			k.Attempts.Failed = parseNumber(value)
		case "stale":
			k.Object.Stale = true
		case "dead":
			k.Object.Dead = true
		case "lost":
			k.Lost = true
		case "leaving":
			if k.Object.Leaving = true; k.Object.Queued { // what its object would begin is not the task any more
				k.State, k.Object.Name, k.Object.Queued = rollout.StatePending, "", false
			}
		case "covered-by":
			k.CoveredBy = value
		case "exclusive":
			k.Exclusive = value
		case "joins":
			k.Joins, k.JoinsSiblings = true, value == "siblings"
		case "pulling":
			k.ExclusiveUntil = k.Attempts.Started.Add(parseDuration(value))
		case "why":
			k.Why = parseReason(value)
			k.Object.Unpulled = k.Why != nil && k.Why.Reason == rollout.ReasonImagePull
		default:
			panic("a task has no " + word)
		}
	}
}

// resetTarget forgets what the node records of a rollout. Holds and objects stay.
func resetTarget(t *rollout.Target) {
	t.Visit.Admitted = false
	for _, k := range t.Tasks {
		if k.Object.Name != "" {
			t.Objects.Orphans = append(t.Objects.Orphans, k.Object.Name)
		}
	}
	t.Tasks = copyPendingTasks(t.Tasks)
}

func (s *scenario) changeTarget(t *rollout.Target, w []string) {
	for _, word := range w {
		switch key, value := splitSetting(word); key {
		case "blocked":
			t.Blocked = parseReason(value)
		case "avoided":
			t.Avoided = nil
			if value != "no" {
				t.Avoided = parseReason(value)
			}
		case "answer":
			t.Handover = parseAnswer(t.Handover, value)
		case "proof":
			t.Proof = parseProof(t.Proof, value)
		case "drift":
			t.Check = s.parseDrift(t.Check, value)
		case "pull":
			t.Pull = s.parsePull(t.Pull, value)
		case "can-roll-back":
			t.Rollback.IfFailed = value != "no"
		case "can-roll-back-unproven":
			t.Rollback.IfUnproven = value != "no"
		case "can-be-taken-back":
			t.Rollback.IfOthers = value != "no"
		case "first":
			t.Rollback.First = value != "no"
		case "taken-back":
			t.Rollback.WithOthers = value != "no"
		case "refuses-rollback":
			t.Rollback.Refused = strings.ReplaceAll(value, "_", " ")
		case "rolled-back":
			t.Rollback.Cause = nil
			if value != "no" {
				t.Rollback.Cause = parseReason(value)
			}
		case "leaving":
			t.Leaving = value != "no"
		case "gone":
			t.Gone = true
		case "group":
			t.Group = rollout.ParseGroupRef(value)
		case "class":
			t.Class = parseNumber(value)
		case "place":
			t.Place = value
		case "admitted":
			t.Visit.Admitted = value != "no"
		case "skipped":
			t.Visit.Skipped = value != "no"
		case "orphan":
			t.Objects.Orphans = append(t.Objects.Orphans, value)
		case "unwanted":
			for i := range t.Objects.Queues {
				t.Objects.Queues[i].Unwanted = true
			}
		case "not-queued":
			t.Objects.Queues = nil
		case "going":
			t.Objects.Going = append(t.Objects.Going, value)
		case "not-going":
			t.Objects.Going, t.Objects.Ended = nil, nil
		case "ended":
			t.Objects.Ended = append(t.Objects.Ended, value)
		case "gone-by":
			t.Objects.GoneBy = s.cluster.State.Now.Add(parseDuration(value))
		case "ended-in": // what comes before its reboot, in a boot that the node has not reported
			t.Reboot = rollout.NewSharedReboot(t.Reboot.Boot, t.Reboot.Tasks, value)
		case "booted":
			t.Rebooted = true
		case "request-failed":
			t.RequestFailed = true
		case "reset":
			resetTarget(t)
		case "unreadable":
			resetTarget(t)
			t.Tasks, t.Blocked = nil, &rollout.Why{Reason: rollout.ReasonStateUnreadable, Text: "its annotations cannot be read"}
		default:
			panic("a target has no " + word)
		}
	}
}

// parseProof parses what must be true of a node: "NAME:what_is_not_true,10m", with ",release" where the node is given back then, or
// "true" where nothing is missing.
func parseProof(before *rollout.Proof, value string) *rollout.Proof {
	missing, rest, _ := strings.Cut(value, ",")
	timeout, rest, _ := strings.Cut(rest, ",")
	p := &rollout.Proof{}
	p.Release = rest == "release"
	if before != nil {
		p.Since = before.Since
	}
	if missing != "true" {
		p.Missing = parseReason(missing)
	}
	if timeout != "" {
		p.Timeout = parseDuration(timeout)
	}
	if rest == "rebooted" {
		p.Settles = p.Since.Add(rollout.ReportTime)
	}
	return p
}

// parseDrift parses when the node is checked, from now: "10m", or "before" for before its turn, "against" for an answer against it, and what is known of the object that checks it: ",ended"
// or ",keep"; ",going" while that is being deleted.
func (s *scenario) parseDrift(before *rollout.Check, value string) *rollout.Check {
	d := rollout.Check{Limit: 5 * time.Minute}
	if before != nil {
		d = *before
	}
	due, rest, _ := strings.Cut(value, ",")
	switch due {
	case "":
	case "before":
		d.Before, d.Due, d.Refused = true, time.Time{}, nil
	case "against":
		d.Refused = &rollout.Why{Reason: rollout.ReasonPreflight, Text: "the disk is full"}
	default:
		d.Due = s.cluster.State.Now.Add(parseDuration(due))
	}
	for option := range strings.SplitSeq(rest, ",") {
		switch option {
		case "ended":
			d.Ended = true
		case "keep":
			d.Keep = true
		case "going":
			d.Object, d.Going, d.GoneBy = "", true, s.cluster.State.Now.Add(d.Limit)
		}
	}
	return &d
}

// parsePull parses how far the pull of a target is: "needed", "ended", "failed:text", "refused:text" for ten seconds, "leaving", "lost",
// "old:name", "none", or "exclusive:key", with ",5m" from now while it is pulling.
func (s *scenario) parsePull(before *rollout.Pull, value string) *rollout.Pull {
	p := rollout.Pull{Needed: true}
	if before != nil {
		p = *before
	}
	value, until, _ := strings.Cut(value, ",")
	word, text, _ := strings.Cut(value, ":")
	text = strings.ReplaceAll(text, "_", " ")
	switch word {
	case "needed":
		p = rollout.Pull{Needed: true}
	case "ended":
		p.Ended, p.Failed = true, nil
	case "failed":
		p.Failed = &rollout.Why{Reason: rollout.ReasonImagePull, Text: text, About: "Pod skyhook/" + p.Object}
	case "refused":
		p.Failed, p.RetryAt = &rollout.Why{Reason: rollout.ReasonRefused, Text: text}, s.cluster.State.Now.Add(10*time.Second)
	case "leaving":
		p.Object, p.Leaving, p.Ended, p.Failed = "", true, false, nil
	case "lost":
		p.Object, p.Leaving, p.Ended, p.Failed = "", false, false, nil
	case "old":
		p.Old = append(p.Old, text)
	case "exclusive":
		p.Exclusive = []rollout.PullKey{{Key: text}}
		if until != "" {
			p.Exclusive[0].Until = s.cluster.State.Now.Add(parseDuration(until))
		}
	case "recorded":
		p.Exclusive = nil
	case "none":
		return nil
	default:
		panic("a pull is not " + word)
	}
	return &p
}

// parseVersions reads a version, or those of several rollouts: "demo:v1,kernel:v2".
func parseVersions(text string) (out rollout.Versions) {
	if !strings.Contains(text, ":") {
		return rollout.Versions(text)
	}
	for entry := range strings.SplitSeq(text, ",") {
		name, version, _ := strings.Cut(entry, ":")
		out = out.Merge(rollout.NewVersions(parseRolloutRef(name), version))
	}
	return out
}

func changeGroup(g *rollout.Group, w []string, now time.Time) {
	for _, word := range w {
		switch key, value := splitSetting(word); key {
		case "limit":
			g.Limit = parseNumber(value)
		case "ledger":
			g.Ledger = rollout.ParseRef(value)
		case "pace":
			g.Pace.Kind = rollout.PaceKind(value)
		case "initial":
			g.Pace.Initial = parseNumber(value)
		case "delta":
			g.Pace.Delta = parseNumber(value)
		case "factor":
			g.Pace.Factor = parseNumber(value)
		case "pass":
			g.Pace.PassPercent = parseNumber(value)
		case "stop-after":
			g.Pace.StopAfter = parseNumber(value)
		case "safety":
			g.Pace.SafetyLimit = parseNumber(value)
		case "taken":
			g.Taken = slices.DeleteFunc(strings.Split(value, ","), func(s string) bool { return s == "none" })
		case "frozen":
			g.Frozen = parseReason(value)
		case "held":
			g.Held = parseReason(value)
		case "closing": // at, margin, opens: all from now
			w := strings.Split(value, ",")
			g.Closing = &rollout.Closing{At: now.Add(parseDuration(w[0])), Margin: parseDuration(w[1]), Text: "the window closes in " + w[0]}
			g.Opens = now.Add(parseDuration(w[2]))
		case "opens":
			g.Opens = now.Add(parseDuration(value))
		case "failed":
			g.Failed = parseReason(value)
		case "soak":
			g.Soak = parseDuration(value)
		case "spread":
			limit, key, _ := strings.Cut(value, ",")
			g.Spread = rollout.Spread{Key: key, Limit: parseNumber(limit)}
		case "zones":
			limit, key, _ := strings.Cut(value, ",")
			g.Spread = rollout.Spread{Key: key, Zones: parseNumber(limit)}
		case "by-default":
			g.Defaults = parseDefaults(value)
		case "stop-first":
			g.Pace.StopFirst = true
		case "resets":
			g.Reset = true
		case "reset":
			g.Memory = rollout.Memory{}
		case "for":
			g.For = parseVersions(value)
		case "resume":
			g.Resume = value
		case "after":
			g.After = nil
			for _, name := range strings.Split(value, ",") {
				g.After = append(g.After, rollout.ParseGroupRef(name))
			}
		case "approval":
			g.Approval = parseApproval(value)
		default:
			panic("a group has no " + word)
		}
	}
}

// parseApproval parses what is rolled out and what a person approved: "new" needs an approval, "new|old|alice" has one of
// alice for something else, and "none" needs none.
func parseApproval(value string) rollout.Approval {
	if value == "none" {
		return rollout.Approval{}
	}
	now, given, _ := strings.Cut(value, "|")
	given, by, _ := strings.Cut(given, "|")
	return rollout.Approval{Required: true, Of: parseVersions(now), Given: parseVersions(given), By: by}
}

func (s *scenario) addPods(node string, pods [][]string) {
	for _, w := range pods {
		ns, name, _ := strings.Cut(w[0], "/")
		p := rollout.Pod{Namespace: ns, Name: name, UID: name}
		for _, word := range w[1:] {
			switch key, value := splitSetting(word); key {
			case "protected":
				p.Wait, p.Protection = true, value
			case "ends-in":
				p.EndsAt = s.cluster.State.Now.Add(parseDuration(value))
			case "leaves-in":
				p.Leaving, p.LeavesAt = true, s.cluster.State.Now.Add(parseDuration(value))
			case "finalizer":
				p.Finalizers = append(p.Finalizers, value)
			case "leaving":
				p.Leaving = true
			case "priority":
				p.Priority = int32(parseNumber(value))
			case "stays":
				p.Stays = true
			case "keep":
				p.Keep = strings.ReplaceAll(value, "_", " ")
			default:
				panic("a pod has no " + word)
			}
		}
		s.cluster.Workloads[node] = append(s.cluster.Workloads[node], p)
	}
}

func (s *scenario) findNode(name string) *rollout.Node {
	n := s.cluster.FindNode(name)
	if n == nil {
		panic("there is no node " + name)
	}
	return n
}

// findOrAddGroup returns a group, or adds one without a budget. Its ledger has its name, until the command group sets another.
func (s *scenario) findOrAddGroup(name string) *rollout.Group {
	for i := range s.cluster.State.Groups {
		if s.cluster.State.Groups[i].Ref.String() == name {
			return &s.cluster.State.Groups[i]
		}
	}
	s.cluster.State.Groups = append(s.cluster.State.Groups, rollout.Group{
		Ref: rollout.ParseGroupRef(name), Ledger: rollout.ParseRef(name), Limit: rollout.Unlimited,
		Pace: rollout.Pace{Kind: rollout.PaceWindow, PassPercent: 100, SafetyLimit: 100, Initial: 1, Delta: 1, Factor: 2},
	})
	return &s.cluster.State.Groups[len(s.cluster.State.Groups)-1]
}

// findTarget returns a target by the words "node rollout".
func (s *scenario) findTarget(w []string) *rollout.Target {
	t := s.cluster.FindTarget(parseRolloutRef(w[1]), w[0])
	if t == nil {
		panic("there is no target " + w[0] + " of " + w[1])
	}
	return t
}

// parseRolloutRef parses the reference of a rollout; a name without a kind is that of a Skyhook.
func parseRolloutRef(word string) rollout.Ref {
	if !strings.Contains(word, "/") {
		return rollout.Ref{Kind: "Skyhook", Name: word}
	}
	return rollout.ParseRef(word)
}

// findTask returns a task by the words "node rollout task".
func (s *scenario) findTask(w []string) *rollout.Task {
	t := s.findTarget(w)
	for i := range t.Tasks {
		if t.Tasks[i].ID == w[2] {
			return &t.Tasks[i]
		}
	}
	panic("there is no task " + w[2])
}
