// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// Every kind of work respects the budget: the first install, an upgrade, a changed configMap, a removal, and the uninstalls
// of a deletion.
func TestBudgetHoldsForEveryKindOfWork(t *testing.T) {
	w := newFixture(t, 3)
	with := func(version, config string) string {
		return strings.Replace(driver, "version: 1.0.0", fmt.Sprintf(`version: %s
      uninstall: {enabled: true}
      configInterrupts: {"sysctl*": {type: reboot}}
      configMap: {sysctl.conf: %q}`, version, config), 1)
	}
	w.Apply(with("1.0.0", "one"))
	w.startOperator()
	w.WaitComplete("driver")
	ran := 0
	expect := func(what string, stages ...string) {
		t.Helper()
		w.WaitComplete("driver")
		for _, n := range []string{"n1", "n2", "n3"} {
			got := w.kubelet.History(n)[ran:]
			for i := range got {
				_, got[i], _ = strings.Cut(got[i], " ")
			}
			if !slices.Equal(got, stages) {
				t.Errorf("%s: on %s ran %v, want %v", what, n, got, stages)
			}
		}
		ran = len(w.kubelet.History("n1"))
	}
	change := func(what, text string, stages ...string) {
		t.Helper()
		w.Apply(text)
		w.Eventually(what+" begins", func() bool { return len(w.kubelet.History("n1")) > ran })
		expect(what, stages...)
	}
	expect("install", "apply", "config", "interrupt", "post-interrupt")
	change("config change", with("1.0.0", "two"), "config", "interrupt", "post-interrupt")
	change("upgrade", with("1.1.0", "two"), "upgrade", "config", "interrupt", "post-interrupt")
	change("downgrade", with("1.0.0", "two"), "uninstall", "interrupt", "apply", "config", "interrupt", "post-interrupt")
	w.Must(w.Client.Delete(t.Context(), w.GetSkyhook("driver")))
	w.Eventually("the Skyhook is gone", func() bool {
		return apierrors.IsNotFound(w.Client.Get(t.Context(), client.ObjectKey{Name: "driver"}, &v1alpha1.Skyhook{}))
	})
	for _, n := range []string{"n1", "n2", "n3"} {
		if got := w.kubelet.History(n)[ran:]; !slices.Equal(got, []string{"kernel-1.0.0 uninstall", "kernel-1.0.0 interrupt"}) {
			t.Errorf("deletion: on %s ran %v", n, got)
		}
	}
	if got := w.kubelet.MostAdmitted(); got != 1 {
		t.Errorf("with a budget of one node, %d nodes were in flight at the same time", got)
	}
}

// Serial packages run one after the other, each stage once.
func TestSerial(t *testing.T) {
	w := newFixture(t, 2)
	w.Apply(strings.NewReplacer("spec:", "spec:\n  serial: true", "\n      dependsOn: {tuning: 1.1.0}", "").Replace(demo))
	w.startOperator()
	w.WaitComplete("demo")
	want := []string{"extra-2.0.0 apply", "extra-2.0.0 config", "tuning-1.1.0 apply", "tuning-1.1.0 config"}
	for _, n := range []string{"n1", "n2"} {
		if got := w.kubelet.History(n); !slices.Equal(got, want) {
			t.Errorf("on %s ran %v, want %v", n, got, want)
		}
	}
}

// An edit that runs nothing is still observed: the status has the new generation, and Ready names what a finished package
// does not use yet.
func TestEditsThatRunNothing(t *testing.T) {
	w := newFixture(t, 1)
	w.Apply(demo)
	w.startOperator()
	w.WaitComplete("demo")
	ran := w.kubelet.History("n1")
	for _, edit := range []struct{ from, to, says string }{
		{"spec:", "spec:\n  priority: 100", ""},
		{"packages/extra", "packages/other", "a rerun"},
	} {
		w.Apply(strings.Replace(demo, edit.from, edit.to, 1))
		generation := w.GetSkyhook("demo").Generation
		w.Eventually("the status has the new generation", func() bool {
			s := w.GetSkyhook("demo")
			return s.Status.ObservedGeneration == generation && s.Status.Status == v1alpha1.StatusComplete && testenv.IsReady(s)
		})
		message := ""
		for _, c := range w.GetSkyhook("demo").Status.Conditions {
			if c.Type == v1alpha1.ConditionReady {
				message = c.Message
			}
		}
		if !strings.Contains(message, edit.says) || edit.says == "" && strings.Contains(message, "rerun") {
			t.Errorf("after %q Ready says %q", edit.to, message)
		}
	}
	if got := w.kubelet.History("n1"); !slices.Equal(got, ran) {
		t.Errorf("it ran %v", got[len(ran):])
	}
}

// A successful deletion logs no error, such as a status update of an object that is gone.
func TestDeletionIsNoError(t *testing.T) {
	w := newFixture(t, 2)
	var mu sync.Mutex
	var lines []string
	w.options.Log = funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	}, funcr.Options{})
	w.Apply(demo)
	w.startOperator()
	w.WaitComplete("demo")
	w.Must(w.Client.Delete(t.Context(), w.GetSkyhook("demo")))
	w.Eventually("the Skyhook is gone", func() bool {
		return apierrors.IsNotFound(w.Client.Get(t.Context(), client.ObjectKey{Name: "demo"}, &v1alpha1.Skyhook{}))
	})
	w.Apply(strings.ReplaceAll(demo, "demo", "next")) // whatever the deletion left to do comes before this is complete
	w.WaitComplete("next")
	w.stop()
	mu.Lock()
	defer mu.Unlock()
	for _, line := range lines {
		if strings.Contains(line, `"error"=`) {
			t.Errorf("logged: %s", line)
		}
	}
	for _, n := range []string{"n1", "n2"} {
		if left := testenv.ListRemains(w.GetNode(n)); slices.ContainsFunc(left, func(m string) bool { return strings.Contains(m, "demo") }) {
			t.Errorf("on %s is left %v", n, left)
		}
	}
}
