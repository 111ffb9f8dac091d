// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/act"
	"github.com/skyhook-k8s/skyhook/internal/cli/packages"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/ui"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// The changes that pages offer, by the commands that they stand for.
const (
	changeRerun    = "rerun"
	changeIgnore   = "ignore"
	changeUnignore = "unignore"
	changeApprove  = "approve"
	changeFetch    = "logs"
)

// offer returns a change with its words.
func (s *uiSource) offer(title string, c ui.Change) ui.Offer {
	return ui.Offer{Change: c, Title: title, Command: strings.Join(s.commandLine(c), " ")}
}

// commandLine returns the command that a change stands for.
func (s *uiSource) commandLine(c ui.Change) []string {
	line := []string{"kubectl", "skyhook"}
	switch c.Verb {
	case changeRerun:
		line = append(line, "package", "reapply", c.Package, "--skyhook", c.Skyhook, "--node", c.Node)
	case changeFetch:
		line = append(line, "package", "logs", c.Package, "--skyhook", c.Skyhook, "--node", c.Node, "--stage", c.Stage, "--fetch")
	case changeIgnore, changeUnignore:
		line = append(line, "node", c.Verb, c.Node)
	case changeApprove:
		line = append(line, c.Verb, c.Skyhook, quoteWord(c.Compartment))
	default:
		line = append(line, c.Verb, c.Skyhook)
	}
	if name := *s.factory.KubeFlags.Context; name != "" {
		line = append(line, "--context", name)
	}
	if name := s.factory.OperatorNamespace; name != session.DefaultNamespace {
		line = append(line, "--operator-namespace", name)
	}
	return line
}

// quoteWord quotes a word for a shell if it may read something else.
func quoteWord(word string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// offersOfRollout returns the changes of a rollout: approve a compartment that waits for that, and of a Skyhook pause or resume,
// disable or enable.
func (s *uiSource) offersOfRollout(r *rollout.Rollout) []ui.Offer {
	if !s.mayChange {
		return nil
	}
	var out []ui.Offer
	for _, c := range s.findUnapproved(r) {
		out = append(out, s.offer("Approve "+c.Name(), ui.Change{Verb: changeApprove, Skyhook: strings.ToLower(c.Owner.Kind) + "/" + c.Owner.Path(), Compartment: c.Name()}))
	}
	hook := s.view.SkyhookOf(r)
	if hook == nil {
		return out
	}
	for _, t := range act.Toggles {
		isSet := hook.Annotations[t.Annotation] == "true"
		if t.Set != isSet {
			out = append(out, s.offer(act.Capitalize(t.Verb), ui.Change{Verb: t.Verb, Skyhook: hook.Name}))
		}
	}
	return out
}

// findUnapproved returns the compartments in which nodes of a rollout wait for an approval.
func (s *uiSource) findUnapproved(r *rollout.Rollout) []rollout.GroupRef {
	var out []rollout.GroupRef
	for i, verdict := range s.view.ReportOf(r.Ref).Verdicts {
		group := r.Targets[i].Group
		if verdict.Why.Reason == rollout.ReasonApproval && !slices.Contains(out, group) {
			out = append(out, group)
		}
	}
	slices.SortFunc(out, rollout.GroupRef.Compare)
	return out
}

// offersOfNode returns the changes of a node: ignore it, and run a package again.
func (s *uiSource) offersOfNode(n *node.Node) []ui.Offer {
	if !s.mayChange {
		return nil
	}
	out := []ui.Offer{s.offer("Ignore", ui.Change{Verb: changeIgnore, Node: n.Name})}
	if _, isIgnored := n.Labels[v1alpha1.LabelIgnore]; isIgnored {
		out[0] = s.offer("Do not ignore any longer", ui.Change{Verb: changeUnignore, Node: n.Name})
	}
	for _, hook := range s.view.Objects.Skyhooks {
		installed, err := n.Installed(hook.Name)
		if err != nil {
			continue
		}
		for _, i := range installed {
			if view.IsInSpec(hook, i) {
				out = append(out, s.offer("Run "+i.Name+" of "+hook.Name+" again", ui.Change{Verb: changeRerun, Skyhook: hook.Name, Package: i.Name, Node: n.Name}))
			}
		}
	}
	return out
}

// fetchesOf returns what reads the logs of stages that succeeded, and whose pods are gone, from the host.
func (s *uiSource) fetchesOf(n *view.Node) map[string]ui.Offer {
	out := map[string]ui.Offer{}
	if s.from.From != "" {
		return out
	}
	for i := range n.Work {
		w := &n.Work[i]
		for _, stage := range w.Stages {
			_, name, _ := strings.Cut(stage.Label, " ")
			isFetched := stage.Log == "" && stage.State == string(rollout.StateDone) && w.Ref.Kind == plan.Kind && slices.Contains(view.LogStages, name)
			if isFetched {
				out[ui.FetchKey(w.Rollout, stage.Label)] = s.offer("Fetch its log", ui.Change{Verb: changeFetch, Skyhook: w.Ref.Name, Package: stage.Package, Node: n.Name, Stage: name})
			}
		}
	}
	return out
}

// change runs the command that a change stands for, and returns what it prints. The page has asked.
func (s *uiSource) change(ctx context.Context, c ui.Change) (string, error) {
	var out strings.Builder
	printer := *s.factory.Printer
	printer.Out, printer.Format = &out, output.Table
	f := *s.factory
	f.Printer = &printer
	sure := session.Confirmation{Given: true}
	if isOfNode := c.Verb == changeRerun || c.Verb == changeIgnore || c.Verb == changeUnignore || c.Verb == changeFetch; isOfNode {
		s.mu.Lock()
		isKnown := s.view.Objects.Node(c.Node) != nil // otherwise the name could be an expression for several nodes
		s.mu.Unlock()
		if !isKnown {
			return "", fmt.Errorf("%w: there is no node %q", view.ErrNotFound, c.Node)
		}
	}
	var err error
	switch at := slices.IndexFunc(act.Toggles, func(t act.Toggle) bool { return t.Verb == c.Verb }); {
	case at >= 0:
		err = act.Toggles[at].Run(ctx, &f, &sure, c.Skyhook)
	case c.Verb == changeApprove:
		err = (&act.ApproveOptions{Factory: &f, Owner: c.Skyhook, Compartment: c.Compartment}).Run(ctx)
	case c.Verb == changeRerun:
		err = (&packages.RerunOptions{Factory: &f, Sure: sure, Name: c.Skyhook, Pkg: c.Package, NodeArgs: []string{c.Node}}).Run(ctx)
	case c.Verb == changeFetch:
		err = (&packages.LogsOptions{Factory: &f, Name: c.Skyhook, Pkg: c.Package, Stage: c.Stage, NodeArgs: []string{c.Node}, Fetch: true, Tail: -1}).Run(ctx)
	case c.Verb == changeIgnore:
		err = act.RunIgnore(ctx, &f, []string{c.Node}, new("true"), "ignored")
	case c.Verb == changeUnignore:
		err = act.RunIgnore(ctx, &f, []string{c.Node}, nil, "unignored")
	default:
		err = fmt.Errorf("%w: pages cannot %q", view.ErrNotFound, c.Verb)
	}
	return out.String(), err
}
