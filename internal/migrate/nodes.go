// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// Suffixes of the keys on nodes that belong to one object, whose name follows.
const (
	suffixNodeState  = "nodeState_"
	suffixStatus     = "status_" // annotation and label
	suffixVersion    = "version_"
	suffixCordon     = "cordon_"
	suffixDrainStart = "drainStart_"
)

// Suffixes of the keys on nodes that belong to no object.
const (
	suffixAutoTaint = "autoTaint_"            // the key of the taint follows
	suffixIgnore    = "ignore"                // a label
	suffixStaysOn   = "runtimeRequiredCordon" // "true": the node stays cordoned after its runtime-required packages
	suffixKnown     = "known"                 // ours: the node is not new
	valueTrue       = "true"
)

// NodeRules say what is copied from the keys of one operator to those of the other, on every node. Copying twice changes
// nothing more.
type NodeRules struct {
	Direction
	Objects   map[string]ObjectRule // by name
	FromTaint corev1.Taint          // the runtime-required taint of the one operator
	ToTaint   corev1.Taint          // and of the other
	Jobs      map[string][]Job      // succeeded and not recorded, by node
	Now       time.Time
}

// ObjectRule says what is copied for one object.
type ObjectRule struct {
	Alone      bool            // only the original's keys count: one that is absent is absent
	Nodes      labels.Selector // of the original
	Interrupts map[string]bool // packages with an interrupt
	UID        string          // of the original, in resource ids
	Generation int64           // of the original
}

// Edit computes the edit of one node. With a state that cannot be read, the text is copied as it is.
func (r NodeRules) Edit(n *node.Node) (node.Edit, error) {
	c := &nodeCopy{NodeRules: r, n: n}
	for _, name := range slices.Sorted(maps.Keys(r.Objects)) {
		if err := c.copyObject(name, r.Objects[name]); err != nil {
			return node.Edit{}, fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	c.copyNodeKeys()
	return c.edit, nil
}

type nodeCopy struct {
	NodeRules
	n    *node.Node
	edit node.Edit
}

// set makes a target annotation equal to the original, or, if the original is absent and that counts, absent.
func (c *nodeCopy) set(suffix string, value string, exists, alone bool) {
	switch {
	case exists:
		c.edit.SetAnnotation(c.n, c.To.Key(suffix), value)
	case alone:
		c.edit.RemoveAnnotation(c.n, c.To.Key(suffix))
	}
}

func (c *nodeCopy) copyAnnotation(from, to string, alone bool) {
	value, exists := c.n.Annotations[c.From.Key(from)]
	c.set(to, value, exists, alone)
}

func (c *nodeCopy) copyLabel(suffix string, alone bool) {
	value, exists := c.n.Labels[c.From.Key(suffix)]
	switch {
	case exists:
		c.edit.SetLabel(c.n, c.To.Key(suffix), value)
	case alone:
		c.edit.RemoveLabel(c.n, c.To.Key(suffix))
	}
}

func (c *nodeCopy) copyObject(name string, rule ObjectRule) error {
	if err := c.copyState(name, rule); err != nil {
		return err
	}
	c.copyAnnotation(suffixStatus+name, suffixStatus+name, rule.Alone)
	c.copyLabel(suffixStatus+name, rule.Alone)
	c.removeConditions(name)
	if c.To == Skyhook {
		c.copyAnnotation(suffixVersion+name, suffixVersion+name, rule.Alone)
		c.copyAnnotation(suffixCordon+name, suffixCordon+name, rule.Alone)
		c.replaceRecord(name, rule)
		return nil
	}
	c.copyBackCordon(name)
	c.edit.RemoveAnnotation(c.n, c.To.Key(suffixDrainStart+name)) // the other operator starts the clock of a drain again
	return nil
}

// removeConditions removes the conditions of an object, which its operator would never update again. The other operator writes its
// own.
func (c *nodeCopy) removeConditions(name string) {
	for _, suffix := range []string{"/NotReady", "/Erroring"} {
		if kind := c.From.Key(name + suffix); c.n.HasCondition(kind) {
			c.edit.RemoveConditions = append(c.edit.RemoveConditions, corev1.NodeConditionType(kind))
		}
	}
}

// copyState copies the state, with the outcome of Jobs that nobody recorded. The original is brought up to date as well, so
// that its operator finds what happened.
func (c *nodeCopy) copyState(name string, rule ObjectRule) error {
	text, exists := c.n.Annotations[c.From.Key(suffixNodeState+name)]
	if jobs := c.jobsOf(name); exists && len(jobs) > 0 {
		state, err := node.ParseState(text)
		if err != nil {
			return fmt.Errorf("annotation %s: %w; correct it, or delete it to start again on this node", c.From.Key(suffixNodeState+name), err)
		}
		changed := false
		for _, j := range jobs {
			changed = j.Record(state, rule.Interrupts[j.Package]) || changed
		}
		if changed {
			text = node.FormatState(state)
			c.edit.SetAnnotation(c.n, c.From.Key(suffixNodeState+name), text)
		}
	}
	c.set(suffixNodeState+name, text, exists, rule.Alone)
	return nil
}

func (c *nodeCopy) jobsOf(name string) []Job {
	return slices.DeleteFunc(slices.Clone(c.Jobs[c.n.Name]), func(j Job) bool { return j.Object != name })
}

// replaceRecord replaces what we recorded beside an earlier state by the record of an earlier owner: resource ids, and with
// them directories on hosts, go on under the original's UID, beyond its generation. A cordon keeps the time since which the
// node is drained, and one that is to stay on survives its release.
func (c *nodeCopy) replaceRecord(name string, rule ObjectRule) {
	key := v1alpha1.PrefixRecord + name
	_, hasState := c.n.Annotations[c.From.Key(suffixNodeState+name)]
	isCordoned := c.n.Annotations[c.From.Key(suffixCordon+name)] == valueTrue
	if !hasState && !isCordoned {
		if rule.Alone {
			c.edit.RemoveAnnotation(c.n, key)
		}
		return
	}
	rec := node.SkyhookRecord{Node: c.n.UID, Skyhook: rule.UID, Visit: node.Visit{Generation: rule.Generation}}
	if isCordoned {
		rec.Held = c.heldSince(name)
	}
	c.edit.SetAnnotation(c.n, key, rec.String())
}

// heldSince is what is recorded of a cordon.
func (c *nodeCopy) heldSince(name string) *node.Held {
	held := &node.Held{At: node.WholeSeconds(c.Now), WasCordoned: c.n.Annotations[c.From.Key(suffixStaysOn)] == valueTrue}
	if was := c.n.Skyhook(name).Record; was.Held != nil && was.Node == c.n.UID {
		held.At = was.Held.At
	}
	if start, err := time.Parse(time.RFC3339, c.n.Annotations[c.From.Key(suffixDrainStart+name)]); err == nil {
		held.At = node.WholeSeconds(start)
	}
	return held
}

// copyBackCordon leaves a cordon that is older than ours to whoever placed it.
func (c *nodeCopy) copyBackCordon(name string) {
	value, exists := c.n.Annotations[c.From.Key(suffixCordon+name)]
	isOthers := c.n.SkyhookHold(name).WasCordoned && c.n.Annotations[c.From.Key(suffixStaysOn)] != valueTrue
	c.set(suffixCordon+name, value, exists && !isOthers, true)
}

// copyNodeKeys copies what belongs to no object: marks, the label that excludes the node, and the runtime-required taint.
func (c *nodeCopy) copyNodeKeys() {
	alone := c.countsAlone()
	c.copyLabel(suffixIgnore, alone)
	c.copyAnnotation(suffixStaysOn, suffixStaysOn, alone)
	c.copyAutoTaints(alone)
	if c.n.HasTaint(c.FromTaint) && !c.ToTaint.MatchTaint(&c.FromTaint) {
		c.edit.RemoveTaints = append(c.edit.RemoveTaints, c.FromTaint)
		if !c.n.HasTaint(c.ToTaint) {
			c.edit.AddTaints = append(c.edit.AddTaints, c.ToTaint)
		}
	}
	if c.To == Skyhook && c.isKnownToOriginal() {
		c.edit.SetAnnotation(c.n, Skyhook.Key(suffixKnown), valueTrue)
	}
}

// countsAlone reports whether keys of the node itself that are absent are absent: NodeWright took them over, with those of an
// object that selects the node.
func (c *nodeCopy) countsAlone() bool {
	for _, rule := range c.Objects {
		if !rule.Alone && rule.Nodes.Matches(labels.Set(c.n.Labels)) {
			return false
		}
	}
	return true
}

// copyAutoTaints copies the marks of taints that the operator placed; the mark of a taint that is replaced is renamed.
func (c *nodeCopy) copyAutoTaints(alone bool) {
	wanted := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(c.n.Annotations)) {
		taint, ok := strings.CutPrefix(key, c.From.Key(suffixAutoTaint))
		if !ok {
			continue
		}
		if taint == autoTaintName(c.FromTaint.Key) {
			taint = autoTaintName(c.ToTaint.Key)
		}
		wanted[c.To.Key(suffixAutoTaint+taint)] = true
		c.edit.SetAnnotation(c.n, c.To.Key(suffixAutoTaint+taint), c.n.Annotations[key])
	}
	for key := range c.n.Annotations {
		if alone && strings.HasPrefix(key, c.To.Key(suffixAutoTaint)) && !wanted[key] {
			c.edit.RemoveAnnotation(c.n, key)
		}
	}
}

// autoTaintName is the key of a taint as the name of an annotation has it.
func autoTaintName(key string) string {
	name := suffixAutoTaint + strings.ReplaceAll(key, "/", "_")
	return strings.TrimPrefix(strings.TrimRight(name[:min(len(name), 63)], "-_."), suffixAutoTaint)
}

func (c *nodeCopy) isKnownToOriginal() bool {
	for _, keys := range []map[string]string{c.n.Annotations, c.n.Labels} {
		for key := range keys {
			if strings.HasPrefix(key, c.From.Group+"/") {
				return true
			}
		}
	}
	return false
}
