// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// maxErrors bounds the errors of one outcome: a broken API server gives a few messages, not thousands.
const maxErrors = 5

// inFlight tracks what is being sent to the API server, of the last plan and of those before it. A node is in flight for
// one plan at a time: nothing is planned for it until its work has completed.
type inFlight struct {
	senders   sync.WaitGroup
	queue     *sendQueue
	backoff   *flowcontrol.Backoff // of what failed
	conflicts *flowcontrol.Backoff // of writes that conflicted

	mu          sync.Mutex
	nodes       map[string]*nodeWork
	deletions   map[*nodeWork]bool        // works that only delete objects that ended, and leave their nodes free
	statuses    map[types.UID]bool        // objects whose status is being written, or their ledger
	ledgers     map[types.UID]func()      // objects whose ledger is being written: what writes their status afterwards, or nil
	failedUntil map[failureKey]time.Time  // what failed a moment ago
	completed   map[*Compiled][]*nodeWork // since the last outcome, by what they were planned from
	retryAt     time.Time
	errs        []error
	failed      map[rollout.Ref]string // by rollout: the first error
	untainted   map[string]string      // nodes to which a taint could not be added, with the error
}

// failureKey is the work of one rollout on a node, or all work there when it names no rollout.
type failureKey struct {
	node    string
	rollout rollout.Ref
}

func (k failureKey) String() string { return k.node + " " + k.rollout.String() }

// inFlightView is what was in flight at one moment.
type inFlightView struct {
	nodes    map[string]bool
	deleting map[request]bool    // objects that ended
	rollouts map[rollout.Ref]int // with the number past the orders of the admissions on their way
	statuses map[types.UID]bool
	failed   map[failureKey]bool // what failed the last time
}

func newInFlight(parallel int) *inFlight {
	return &inFlight{
		queue: newSendQueue(parallel), backoff: flowcontrol.NewBackOff(minNodeBackoff, maxNodeBackoff),
		conflicts: flowcontrol.NewBackOff(minConflictBackoff, maxNodeBackoff), nodes: map[string]*nodeWork{}, deletions: map[*nodeWork]bool{},
		statuses: map[types.UID]bool{}, ledgers: map[types.UID]func(){}, failedUntil: map[failureKey]time.Time{}, completed: map[*Compiled][]*nodeWork{}, failed: map[rollout.Ref]string{}, untainted: map[string]string{},
	}
}

// view returns what is in flight now, for a pass that leaves it alone: when it completes another pass is needed.
func (f *inFlight) view() inFlightView {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := inFlightView{nodes: make(map[string]bool, len(f.nodes)), deleting: map[request]bool{}, rollouts: map[rollout.Ref]int{}, statuses: maps.Clone(f.statuses), failed: make(map[failureKey]bool, len(f.failedUntil))}
	for key := range f.failedUntil {
		v.failed[key] = true
	}
	for name, w := range f.nodes {
		v.nodes[name], w.observed = true, true
	}
	for w := range f.deletions {
		for i := range w.deletions {
			v.deleting[objectOf(&w.deletions[i])] = true
		}
	}
	for w := range f.works() {
		for r, past := range w.rollouts {
			v.rollouts[r] = max(v.rollouts[r], past)
		}
	}
	return v
}

// works returns everything that is in flight. The caller holds the lock.
func (f *inFlight) works() iter.Seq[*nodeWork] {
	return func(yield func(*nodeWork) bool) {
		for _, w := range f.nodes {
			if !yield(w) {
				return
			}
		}
		for w := range f.deletions {
			if !yield(w) {
				return
			}
		}
	}
}

// objectOf is the object of an action.
func objectOf(a *rollout.Action) request {
	return request{rollout: a.Rollout, node: a.Node, object: a.Object}
}

// await has the works in flight for a rollout that do more than check for drift request a pass when they complete, and reports whether
// there are any.
func (f *inFlight) await(ref rollout.Ref) (found bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.works() {
		if _, ok := w.rollouts[ref]; ok && w.kind != workChecks {
			w.observed, found = true, true
		}
	}
	return found
}

func (f *inFlight) hasNode(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nodes[name] != nil
}

func (f *inFlight) add(all []*nodeWork) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range all {
		f.nodes[w.node] = w
	}
}

// addDeletions adds a work that only deletes objects.
func (f *inFlight) addDeletions(w *nodeWork) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deletions[w] = true
}

// complete ends the flight of a work: from now on its node is observed and decided about again. It reports whether that needs a
// pass. If nothing was changed and no pass left the node alone meanwhile, the same would be decided again.
func (f *inFlight) complete(w *nodeWork, plannedFrom *Compiled) (needsPass bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.kind == workDeletions {
		delete(f.deletions, w)
	} else {
		delete(f.nodes, w.node)
	}
	f.completed[plannedFrom] = append(f.completed[plannedFrom], w)
	hasLateRetry := w.late && !f.retryAt.IsZero()
	return w.changed || w.observed || hasLateRetry
}

// tryBeginStatus begins to write the status of an object unless an earlier one is in flight, and reports whether it did.
func (f *inFlight) tryBeginStatus(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.statuses[uid] {
		return false
	}
	f.statuses[uid] = true
	return true
}

func (f *inFlight) endStatus(uid types.UID, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.statuses, uid)
	if err != nil {
		f.errs = append(f.errs, err)
	}
}

// beginLedger notes that the ledger of an object is written from now on: its status is written afterwards.
func (f *inFlight) beginLedger(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.statuses[uid], f.ledgers[uid] = true, nil
}

// queueStatus has the status of an object written after its ledger. It returns false if its status is being written.
func (f *inFlight) queueStatus(uid types.UID, write func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, isLedger := f.ledgers[uid]
	if isLedger {
		f.ledgers[uid] = write
	}
	return isLedger
}

// endLedger notes that the ledger of an object was written. It returns what writes its status then; nil for nothing. A status that was made
// for admissions that were not written is not written.
func (f *inFlight) endLedger(uid types.UID, isWritten bool) (writeStatus func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	writeStatus = f.ledgers[uid]
	delete(f.ledgers, uid)
	if !isWritten || writeStatus == nil {
		delete(f.statuses, uid)
		return nil
	}
	return writeStatus
}

// retry asks for another pass at a time.
func (f *inFlight) retry(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.retryAt = node.Earlier(f.retryAt, at)
}

// retryConflict asks for another pass after a conflict: that pass decides about what was changed meanwhile. It reports false for
// what conflicts again and again, as with a webhook that answers so whatever is written: that is an error like others.
func (f *inFlight) retryConflict(key failureKey, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conflicts.Next(key.String(), now)
	delay := f.conflicts.Get(key.String())
	if delay >= minNodeBackoff {
		return false
	}
	f.retryAt = node.Earlier(f.retryAt, now.Add(delay))
	return true
}

// recordError notes an error that concerns a whole rollout, or none when it has no name.
func (f *inFlight) recordError(name rollout.Ref, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !name.IsZero() {
		err = fmt.Errorf("%s: %w", name, err)
		f.setFailed(name, err)
	}
	f.errs = append(f.errs, err)
}

// recordRefusal notes that a request of a rollout was refused, and when it is made again.
func (f *inFlight) recordRefusal(name rollout.Ref, refused node.Refusal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !name.IsZero() {
		f.setFailed(name, errors.New(refused.Why().Text))
	}
	f.retryAt = node.Earlier(f.retryAt, refused.RetryAt())
}

// recordNodeError notes that all work on a node failed, and leaves the node alone for a while.
func (f *inFlight) recordNodeError(w *nodeWork, err error, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err = f.delay(failureKey{node: w.node}, err, now)
	for _, a := range w.actions {
		f.setFailed(a.Rollout, err)
	}
}

// recordRolloutError notes that the work of one rollout on a node failed, and leaves that alone for a while.
func (f *inFlight) recordRolloutError(key failureKey, err error, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setFailed(key.rollout, f.delay(key, err, now))
}

// delay leaves something alone for a time that doubles with each failure, and returns its error. The caller holds the lock.
func (f *inFlight) delay(key failureKey, err error, now time.Time) error {
	f.backoff.Next(key.String(), now)
	until := now.Add(f.backoff.Get(key.String()))
	f.failedUntil[key] = until
	f.retryAt = node.Earlier(f.retryAt, until)
	err = fmt.Errorf("node %s: %w", key.node, err)
	f.errs = append(f.errs, err)
	return err
}

// forgetErrors forgets the earlier errors of what succeeded on a node.
func (f *inFlight) forgetErrors(w *nodeWork) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.kind != workDeletions { // what failed meanwhile on its node is not its own
		f.forgetError(failureKey{node: w.node})
	}
	for name := range w.rollouts {
		if !w.failed[name] {
			f.forgetError(failureKey{w.node, name})
		}
	}
}

// forgetOld forgets what failed long ago and was not tried again: its node or its rollout is gone.
func (f *inFlight) forgetOld(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.failedUntil, func(_ failureKey, until time.Time) bool { return now.Sub(until) > refusalMemory })
	f.backoff.GC()
	f.conflicts.GC()
}

func (f *inFlight) forgetError(key failureKey) {
	f.conflicts.DeleteEntry(key.String())
	if _, ok := f.failedUntil[key]; ok {
		f.backoff.DeleteEntry(key.String())
		delete(f.failedUntil, key)
	}
}

// forgetErrorOf is forgetError for what is no work of its own.
func (f *inFlight) forgetErrorOf(key failureKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetError(key)
}

// forgetConflicts forgets the conflicts about the object of a rollout.
func (f *inFlight) forgetConflicts(name rollout.Ref) {
	f.conflicts.DeleteEntry(failureKey{rollout: name}.String())
}

// awaitRetry asks for a pass when the work of a rollout on a node may be tried again that failed a moment ago, and reports whether that
// is still to come.
func (f *inFlight) awaitRetry(on string, name rollout.Ref, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.awaitRetryOf(failureKey{on, name}, now)
}

// awaitRetryOf is awaitRetry of anything that failed. The caller holds the lock.
func (f *inFlight) awaitRetryOf(key failureKey, now time.Time) bool {
	until := f.failedUntil[key]
	if !until.After(now) {
		return false
	}
	f.retryAt = node.Earlier(f.retryAt, until)
	return true
}

// recordUntainted notes that a taint could not be added to a node, if that was to be done.
func (f *inFlight) recordUntainted(w *nodeWork, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(w.actions, func(a rollout.Action) bool { return a.Verb == rollout.VerbTaint }) {
		f.untainted[w.node] = err.Error()
	}
}

// setFailed keeps the first error of a rollout. The caller holds the lock.
func (f *inFlight) setFailed(name rollout.Ref, err error) {
	if f.failed[name] == "" {
		f.failed[name] = err.Error()
	}
}

// withoutFailed leaves out the nodes that failed a moment ago.
func (f *inFlight) withoutFailed(all []*nodeWork, now time.Time) []*nodeWork {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(all, func(w *nodeWork) bool { return f.awaitRetryOf(failureKey{node: w.node}, now) })
}

// takeOutcome sums up what completed since the last outcome.
func (f *inFlight) takeOutcome() (Outcome, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.works() {
		w.late = true
	}
	out := Outcome{RetryAt: f.retryAt, Errors: f.failed, Untainted: f.untainted}
	for _, from := range slices.SortedFunc(maps.Keys(f.completed), func(a, b *Compiled) int { return a.Objects.observedAt.Compare(b.Objects.observedAt) }) {
		works := f.completed[from]
		slices.SortFunc(works, func(a, b *nodeWork) int { return strings.Compare(a.node, b.node) })
		count := 0
		for _, w := range works {
			count += len(w.done)
		}
		actions := make([]rollout.Action, 0, count)
		for _, w := range works {
			actions = append(actions, w.done...)
		}
		if len(actions) > 0 {
			out.Applied = append(out.Applied, AppliedActions{From: from, Actions: actions})
		}
	}
	errs := f.errs
	if more := len(errs) - maxErrors; more > 0 {
		errs = append(errs[:maxErrors:maxErrors], fmt.Errorf("and %d more errors", more))
	}
	f.retryAt, f.errs, f.completed = time.Time{}, nil, map[*Compiled][]*nodeWork{}
	f.failed, f.untainted = map[rollout.Ref]string{}, map[string]string{}
	return out, errors.Join(errs...)
}
