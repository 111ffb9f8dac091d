// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// TestRecord checks what a Job that succeeded changes in a node's state, and that it changes it once.
func TestRecord(t *testing.T) {
	entry := func(version, stage, state string) string {
		return `"p|` + version + `":{"name":"p","version":"` + version + `","image":"i","stage":"` + stage + `","state":"` + state + `"}`
	}
	other := `"q|1":{"name":"q","version":"1","image":"i","stage":"interrupt","state":"skipped"}`
	done := `"q|1":{"name":"q","version":"1","image":"i","stage":"interrupt","state":"complete"}`
	for _, c := range []struct {
		name, stage  string
		hasInterrupt bool
		state, want  string
	}{
		{"apply", "apply", false, entry("2", "apply", "in_progress"), entry("2", "apply", "complete")},
		{"it failed before", "apply", false, entry("2", "apply", "erroring"), entry("2", "apply", "complete")},
		{"another stage runs", "apply", false, entry("2", "config", "in_progress"), ""},
		{"no entry", "apply", false, other, ""},
		{"an upgrade drops the old version", "upgrade", true, entry("1", "config", "complete") + "," + entry("2", "upgrade", "in_progress"), entry("2", "upgrade", "complete")},
		{"an interrupt completes those that wait for it", "interrupt", true, entry("2", "interrupt", "in_progress") + "," + other, entry("2", "interrupt", "complete") + "," + done},
		{"an uninstall without an interrupt", "uninstall", false, entry("2", "uninstall", "in_progress") + "," + other, other},
		{"an uninstall with an interrupt", "uninstall", true, entry("2", "uninstall", "in_progress"), entry("2", "uninstall-interrupt", "in_progress")},
	} {
		state, err := node.ParseState("{" + c.state + "}")
		if err != nil {
			t.Fatal(err)
		}
		j := Job{Package: "p", Version: "2", Stage: v1alpha1.Stage(c.stage)}
		if changed := j.Record(state, c.hasInterrupt); changed != (c.want != "") {
			t.Errorf("%s: changed %v", c.name, changed)
		}
		want := "{" + c.want + "}"
		if c.want == "" {
			want = "{" + c.state + "}"
		}
		if got := node.FormatState(state); got != want {
			t.Errorf("%s: state is\n%s, want\n%s", c.name, got, want)
		}
		if j.Record(state, c.hasInterrupt) {
			t.Errorf("%s: recorded twice", c.name)
		}
	}
}

func TestWindows(t *testing.T) {
	for _, c := range []struct {
		w     timeWindow
		hours string // - for no window
		days  string
		err   string
	}{
		{timeWindow{start: "0:00", end: "23:59:59"}, "-", "", ""},
		{timeWindow{}, "-", "", ""},
		{timeWindow{start: "9pm", end: "23:59:59"}, "21:00-24:00", "", ""},
		{timeWindow{start: "22:00", end: "4:30:30"}, "22:00-04:31", "", ""},
		{timeWindow{days: []string{"sa", "0"}}, "", "Sunday Saturday", ""},
		{timeWindow{days: []string{"mon", "Monday", "tu"}, start: "1:15", end: "2:00"}, "01:15-02:00", "Monday Tuesday", ""},
		{timeWindow{days: []string{"someday"}}, "", "", `"someday" is not a day`},
		{timeWindow{start: "25:00"}, "", "", `"25:00" is not a time of day`},
		{timeWindow{zone: "Moon/Crater"}, "", "", `"Moon/Crater" does not exist`},
	} {
		got, err := c.w.toWindows()
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%+v: error %v, want %s", c.w, err, c.err)
			}
		case err != nil || (got == nil) != (c.hours == "-"):
			t.Errorf("%+v: %+v, %v", c.w, got, err)
		case got != nil:
			var days []string
			for _, d := range got.Open[0].Weekdays {
				days = append(days, string(d))
			}
			if got.Open[0].Hours != c.hours || strings.Join(days, " ") != c.days {
				t.Errorf("%+v: %+v", c.w, got.Open)
			}
		}
	}
}

func kuredWith(flags ...string) *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kured"}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Image: "registry.local:5000/kured@sha256:0", Command: []string{"/usr/bin/kured"}, Args: flags}}
	return d
}

func TestKuredFlags(t *testing.T) {
	m, err := FromKured(kuredWith("--reboot-sentinel-command=needs-restarting -r", "--lock-ttl=45m", "--alert-filter-match-only", "--prometheus-url", "http://p",
		"--alert-filter-regexp='Disk'", "--concurrency=many", "--reboot-days=mon", "--reboot-days=someday"))
	if err != nil {
		t.Fatal(err)
	}
	spec, policy := m.NodeOp.Spec, m.Policy.Spec
	if got, want := spec.Preflight.Command[2], `chroot "$HOST_DIR" needs-restarting -r || echo 'no reboot is required' > /dev/termination-log`; got != want {
		t.Errorf("the check is %s, want %s", got, want)
	}
	if *spec.RebootTimeoutSeconds != 2700 || policy.Default.Budget.Count != nil || *policy.Default.Budget.Percent != 100 || spec.Concurrency != 1 {
		t.Errorf("a lock that expires becomes %+v and %+v", spec, policy.Default)
	}
	if got, want := policy.Health.Prometheus[0].Query, `count(ALERTS{alertname=~".*(?:Disk).*"}) or vector(0)`; got != want {
		t.Errorf("the query is %s, want %s", got, want)
	}
	for _, want := range []string{`--concurrency: "many" is not a number`, `"someday" is not a day`, "--reboot-sentinel-command: "} {
		if !slices.ContainsFunc(m.Gaps, func(g Gap) bool { return strings.Contains(g.String(), want) }) {
			t.Errorf("no gap says %q: %v", want, m.Gaps)
		}
	}
}

// TestKuredGaps checks that each flag is known, and either converted or explained.
func TestKuredGaps(t *testing.T) {
	for name := range kuredGaps {
		if _, ok := kuredDefaults[name]; !ok {
			t.Errorf("%s is not a flag", name)
		}
	}
}

// TestConvertBack checks that what only this operator has is named on the way back, and that a round trip keeps the rest.
func TestConvertBack(t *testing.T) {
	o := func(kind string, spec map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		u.SetAPIVersion("skyhook.nvidia.com/v1alpha1")
		u.SetKind(kind)
		u.SetName("demo")
		u.SetAnnotations(map[string]string{"skyhook.nvidia.com/disable": "true", "skyhook.nvidia.com/migrated-from": "x", "other": "stays"})
		return u
	}
	back, gaps := ToNodeWright.Convert(o("Skyhook", map[string]any{
		"drainConfig": map[string]any{"timeout": "5m", "onTimeout": "Force", "gracePeriod": "30s", "force": false},
		"packages":    map[string]any{"a": map[string]any{"stageTimeout": "20m", "retries": int64(2)}},
	}))
	if len(gaps) != 2 || gaps[0].Field != "spec.drainConfig.onTimeout" || gaps[1].Field != "spec.packages.a.retries" {
		t.Errorf("gaps: %v", gaps)
	}
	if a := back.GetAnnotations(); len(a) != 2 || a["nodewright.nvidia.com/disable"] != "true" {
		t.Errorf("annotations: %v", a)
	}
	forth, gaps := ToSkyhook.Convert(back)
	drain, _, _ := unstructured.NestedMap(forth.Object, "spec", "drainConfig")
	if len(gaps) > 0 || forth.GetKind() != "Skyhook" || drain["timeout"] != "5m0s" || drain["gracePeriod"] != "30s" || drain["force"] != false {
		t.Errorf("a round trip gives %v with %v", forth.Object, gaps)
	}
	_, gaps = ToNodeWright.Convert(o("DeploymentPolicy", map[string]any{"scope": "Policy", "paused": false, "windows": map[string]any{}, "soak": "5m"}))
	if len(gaps) != 3 {
		t.Errorf("gaps of a policy: %v", gaps)
	}
}
