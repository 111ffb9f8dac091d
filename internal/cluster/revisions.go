// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// revisions are the ControllerRevisions of all Skyhooks, without their content, by the UID of the Skyhook, the newest first. They are
// listed once: nobody but the leader writes them.
type revisions struct {
	of       map[types.UID][]plan.Revision
	isLoaded bool
}

// load lists the revisions, once.
func (r *revisions) load(ctx context.Context, options *Options) error {
	if r.isLoaded || options.Client == nil { // a reader shows what the status says
		return nil
	}
	of := map[types.UID][]plan.Revision{}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ControllerRevisionList"))
	err := eachItem(ctx, options.Live, list, pageSize, func(m *metav1.PartialObjectMetadata) {
		owner := metav1.GetControllerOf(m)
		found, isRevision := plan.ReadRevision(&m.ObjectMeta)
		if owner != nil && isRevision {
			of[owner.UID] = append(of[owner.UID], found)
		}
	}, client.InNamespace(options.Config.Namespace), client.HasLabels{v1alpha1.LabelRevisionOf})
	if err != nil {
		return fmt.Errorf("listing ControllerRevisions: %w", err)
	}
	for _, all := range of {
		sortRevisions(all)
	}
	r.of, r.isLoaded = of, true
	return nil
}

func sortRevisions(all []plan.Revision) {
	slices.SortFunc(all, func(a, b plan.Revision) int {
		return cmp.Or(cmp.Compare(b.Number, a.Number), cmp.Compare(a.Name, b.Name))
	})
}

// list returns the revisions of a Skyhook; nil while they are not known.
func (r *revisions) list(s *v1alpha1.Skyhook) []plan.Revision {
	if !r.isLoaded {
		return nil
	}
	return append([]plan.Revision{}, r.of[s.UID]...)
}

// revisionsOf returns the revisions of a Skyhook; nil while they are not known.
func (o *Objects) revisionsOf(s *v1alpha1.Skyhook) []plan.Revision {
	if o.revisions == nil {
		return nil
	}
	return o.revisions.list(s)
}

// put makes a revision the newest one of a Skyhook.
func (r *revisions) put(s *v1alpha1.Skyhook, newest plan.Revision) {
	r.remove(s, newest.Name)
	r.of[s.UID] = append([]plan.Revision{newest}, r.of[s.UID]...)
}

func (r *revisions) remove(s *v1alpha1.Skyhook, name string) {
	r.of[s.UID] = slices.DeleteFunc(r.of[s.UID], func(one plan.Revision) bool { return one.Name == name })
}

// recordRevisions records the packages of each Skyhook that began to roll out as its newest revision, and deletes those beyond the
// limit. It holds up nothing: a Skyhook whose revision cannot be written is rolled out all the same, and the error is reported.
func (w skyhookOwners) recordRevisions(ctx context.Context) {
	if !w.revisions.isLoaded {
		return
	}
	exists := map[types.UID]bool{}
	for _, s := range w.objects.Skyhooks {
		exists[s.UID] = true
		name := plan.Ref(s.Name)
		by := w.compiled.Skyhooks[name]
		if by == nil || by.Removed || w.notReady[name] {
			continue
		}
		_, err := w.try(request{rollout: name, object: "ControllerRevisions"}, func() error {
			if err := w.recordRevision(ctx, s, by); err != nil {
				return err
			}
			if err := w.recordPins(ctx, s, by); err != nil {
				return err
			}
			return w.deleteSuperfluousRevisions(ctx, s, by)
		})
		if err != nil {
			w.inFlight.recordError(name, err)
		}
	}
	maps.DeleteFunc(w.revisions.of, func(uid types.UID, _ []plan.Revision) bool { return !exists[uid] })
}

// recordRevision makes the packages of the spec the newest revision.
func (w skyhookOwners) recordRevision(ctx context.Context, s *v1alpha1.Skyhook, by *skyhook.Compiled) error {
	all, number := w.revisions.of[s.UID], int64(1)
	if len(all) > 0 {
		number = all[0].Number + 1
	}
	key := by.RevisionKey()
	if len(all) > 0 && all[0].Key == key || !by.HasBegun() {
		return nil
	}
	revision, err := by.NewRevision(number)
	if err != nil {
		return err
	}
	isKnown := slices.ContainsFunc(all, func(r plan.Revision) bool { return r.Key == key })
	if isKnown {
		err = w.renumberRevision(ctx, revision)
		isKnown = !apierrors.IsNotFound(err) // somebody deleted it
	}
	if !isKnown {
		err = w.createRevision(ctx, s, revision)
	}
	if err != nil {
		return err
	}
	newest, _ := plan.ReadRevision(&revision.ObjectMeta)
	if isKnown {
		newest.Pins = all[slices.IndexFunc(all, func(r plan.Revision) bool { return r.Key == key })].Pins
	}
	w.revisions.put(s, newest)
	w.inFlight.retry(w.now.Add(time.Second)) // the status shows it
	return nil
}

// createRevision creates a ControllerRevision. One of this Skyhook that exists already was created without our knowing, and gets the
// number. One of somebody else stays; that of an earlier Skyhook of this name is about to be deleted by the garbage collector.
func (w skyhookOwners) createRevision(ctx context.Context, s *v1alpha1.Skyhook, revision *appsv1.ControllerRevision) error {
	err := w.options.Client.Create(ctx, revision.DeepCopy())
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			err = fmt.Errorf("creating ControllerRevision %s: %w", revision.Name, err)
		}
		return err
	}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ControllerRevision"))
	if err := w.options.Live.Get(ctx, client.ObjectKeyFromObject(revision), found); err != nil {
		return fmt.Errorf("reading ControllerRevision %s, which exists already: %w", revision.Name, err)
	}
	if !isControlledBy(found, string(s.UID)) {
		return fmt.Errorf("ControllerRevision %s/%s exists, and %w: delete it", revision.Namespace, revision.Name, errForeign)
	}
	return w.renumberRevision(ctx, revision)
}

// renumberRevision makes a revision that exists the newest one.
func (w skyhookOwners) renumberRevision(ctx context.Context, revision *appsv1.ControllerRevision) error {
	patch, err := skyhook.RenumberPatch(revision)
	if err != nil {
		return err
	}
	err = w.options.Client.Patch(ctx, revision.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	if err != nil {
		return fmt.Errorf("renumbering ControllerRevision %s: %w", revision.Name, err)
	}
	return nil
}

// recordPins keeps the digests by which nodes pull images with the revision that they belong to.
func (w skyhookOwners) recordPins(ctx context.Context, s *v1alpha1.Skyhook, by *skyhook.Compiled) error {
	all := w.revisions.of[s.UID]
	for i := range all {
		pins := by.RevisionPins(all[i], i == 0)
		if skyhook.HasSamePins(pins, all[i].Pins) {
			continue
		}
		patch, err := skyhook.PinsPatch(pins)
		if err != nil {
			return err
		}
		m := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: w.objects.Config.Namespace, Name: all[i].Name}}
		if err := w.options.Client.Patch(ctx, m, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("recording the digests of ControllerRevision %s: %w", m.Name, err)
		}
		all[i].Pins = pins
	}
	return nil
}

func (w skyhookOwners) deleteSuperfluousRevisions(ctx context.Context, s *v1alpha1.Skyhook, by *skyhook.Compiled) error {
	for _, r := range by.SuperfluousRevisions(w.revisions.of[s.UID]) {
		m := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: w.objects.Config.Namespace, Name: r.Name}}
		if err := w.options.Client.Delete(ctx, m); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting ControllerRevision %s: %w", r.Name, err)
		}
		w.revisions.remove(s, r.Name)
	}
	return nil
}
