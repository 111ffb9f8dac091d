// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/policy"
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

// kuredContains is when kured reboots nodes, as its own code says: on days by the local date, from start to the second of end.
func kuredContains(days []int, start, end time.Duration, local time.Time) bool {
	if !slices.Contains(days, int(local.Weekday())) {
		return false
	}
	now := time.Duration(local.Hour())*time.Hour + time.Duration(local.Minute())*time.Minute + time.Duration(local.Second())*time.Second
	if start > end {
		return now >= start || now <= end
	}
	return start <= now && now <= end
}

// TestWindows compares windows with those of kured, for each minute of two weeks in which clocks change. kured's last second is left out if
// it begins a minute.
func TestWindows(t *testing.T) {
	for _, c := range []struct {
		w    timeWindow
		want string // - for no window
	}{
		{timeWindow{start: "0:00", end: "23:59:59"}, "-"},
		{timeWindow{}, "-"},
		{timeWindow{start: "9pm", end: "23:59:59"}, "0 21-23 * * * 1h0m0s"},
		{timeWindow{start: "22:00", end: "4:30", zone: "Europe/Berlin"}, "0 0-3,22-23 * * * 1h0m0s; 0 4 * * * 30m0s"},
		{timeWindow{days: []string{"1", "2", "thu"}, start: "22:15", end: "3:59:59", zone: "America/New_York"},
			"0 0-3 * * 1-2,4 1h0m0s; 15 22 * * 1-2,4 1h0m0s; 15 23 * * 1-2,4 45m0s"},
		{timeWindow{days: []string{"sa", "0"}, zone: "Europe/Berlin"}, "0 * * * 0,6 1h0m0s"},
		{timeWindow{days: []string{"mon", "Monday", "tu"}, start: "1:15", end: "2:00"}, "15 1 * * 1-2 45m0s"},
		{timeWindow{start: "1:30", end: "0:30"}, "0 0 * * * 30m0s; 30 1-22 * * * 1h0m0s; 30 23 * * * 30m0s"},
		{timeWindow{days: []string{"fri"}, start: "9:00", end: "8:59:59"}, "0 * * * 5 1h0m0s"},
	} {
		got, err := c.w.toWindows()
		if err != nil {
			t.Errorf("%+v: %v", c.w, err)
			continue
		}
		if c.want == "-" || got == nil {
			if got != nil || c.want != "-" {
				t.Errorf("%+v: %+v", c.w, got)
			}
			continue
		}
		var open []string
		for _, w := range got.Open {
			open = append(open, w.Schedule+" "+w.Duration.Duration.String())
		}
		if strings.Join(open, "; ") != c.want {
			t.Errorf("%+v: %s, want %s", c.w, strings.Join(open, "; "), c.want)
		}
		calendar, err := policy.NewCalendar(got)
		if err != nil {
			t.Fatal(err)
		}
		days, _ := parseDays(c.w.days)
		start, _ := parseTimeOfDay(c.w.start, 0)
		end, _ := parseTimeOfDay(c.w.end, 24*time.Hour-time.Second)
		zone, _ := time.LoadLocation(c.w.zone)
		for _, first := range []time.Time{time.Date(2026, 3, 6, 0, 0, 30, 0, time.UTC), time.Date(2026, 3, 27, 0, 0, 30, 0, time.UTC), time.Date(2026, 10, 23, 0, 0, 30, 0, time.UTC)} {
			for minute := range 10 * dayMinutes {
				at := first.Add(time.Duration(minute) * time.Minute)
				if want := kuredContains(days, start, end, at.In(zone)); calendar.IsOpen(at) != want {
					t.Fatalf("%+v: %s: open is %v", c.w, at.In(zone), !want)
				}
			}
		}
	}
}

// TestInexactWindows: what has no counterpart suspends the NodeOp, and is named.
func TestInexactWindows(t *testing.T) {
	for flags, want := range map[string]string{
		"--start-time=9:00 --end-time=9:00":     "the window from 9:00 to 9:00 is not made of whole minutes",
		"--start-time=22:00 --end-time=4:30:30": "is not made of whole minutes",
		"--start-time=22:00:30":                 "is not made of whole minutes",
		"--start-time=25:00":                    `"25:00" is not a time of day`,
		"--reboot-days=someday":                 `"someday" is not a day`,
		"--time-zone=Moon/Crater":               `"Moon/Crater" does not exist`,
		"--time-zone=Local":                     "the time zone of the node is not known",
	} {
		m, err := FromKured(kuredWith(strings.Fields(flags)...), nil)
		if err != nil {
			t.Fatal(err)
		}
		isNamed := slices.ContainsFunc(m.Gaps, func(g Gap) bool { return strings.Contains(g.Text, want) && strings.Contains(g.Text, "suspend: true") })
		if !isNamed || m.NodeOp.Spec.Suspend == nil || !*m.NodeOp.Spec.Suspend || m.Policy.Spec.Windows != nil {
			t.Errorf("%s: %+v, suspend %v, windows %v", flags, m.Gaps, m.NodeOp.Spec.Suspend, m.Policy.Spec.Windows)
		}
	}
	fromSecret := kuredWith()
	fromSecret.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "KURED_REBOOT_DAYS", ValueFrom: &corev1.EnvVarSource{}}}
	if m, err := FromKured(fromSecret, nil); err != nil || m.NodeOp.Spec.Suspend == nil {
		t.Errorf("with days from a Secret: suspend %v, %v", m.NodeOp.Spec.Suspend, err)
	}
	m, err := FromKured(kuredWith("--start-time=22:00"), nil)
	if err != nil || m.NodeOp.Spec.Suspend != nil {
		t.Errorf("an exact window is suspended: %v, %v", m.NodeOp.Spec.Suspend, err)
	}
}

// TestKuredIsExactOrSuspended: a NodeOp that would reboot a node which kured leaves alone, or drain a pod that it leaves, is suspended, and
// the gap is named.
func TestKuredIsExactOrSuspended(t *testing.T) {
	pool := corev1.NodeSelectorRequirement{Key: "pool", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}
	affinity := func(terms ...corev1.NodeSelectorTerm) func(*corev1.PodSpec) {
		return func(p *corev1.PodSpec) {
			p.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
		}
	}
	nodes := make([]corev1.Node, 2)
	nodes[0].Name, nodes[1].Name = "plain", "gpu"
	nodes[0].Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule}, {Key: "prefer", Effect: corev1.TaintEffectPreferNoSchedule}}
	nodes[1].Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	for name, c := range map[string]struct {
		flags  string
		edit   func(*corev1.PodSpec)
		nodes  []corev1.Node
		exact  bool
		reason string
	}{
		"one term":           {edit: affinity(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{pool}}), exact: true},
		"two terms":          {edit: affinity(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{pool}}, corev1.NodeSelectorTerm{}), reason: "affinity: "},
		"fields":             {edit: affinity(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{pool}}), reason: "affinity: "},
		"no taint":           {nodes: nodes[:1], exact: true},
		"taint":              {nodes: nodes, reason: "tolerations: kured does not run on gpu because of a taint"},
		"tolerated taint":    {nodes: nodes, edit: func(p *corev1.PodSpec) { p.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }, exact: true},
		"other pool's taint": {nodes: nodes, edit: func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{"pool": "a"} }, exact: true},
		"blocking pods":      {flags: "--blocking-pod-selector=app=db,!test", exact: true},
		"two selectors":      {flags: "--blocking-pod-selector=app=db --blocking-pod-selector=app=queue", reason: "--blocking-pod-selector: "},
		"no selector":        {flags: "--blocking-pod-selector=size>3", reason: "--blocking-pod-selector: "},
		"pods to drain":      {flags: "--drain-pod-selector=app", exact: true},
		"command":            {flags: "--reboot-sentinel-command=check", reason: "--reboot-sentinel-command: "},
		"shell":              {flags: "--reboot-sentinel=/run/$(id)", reason: `--reboot-sentinel: "/run/$(id)"`},
		"address":            {flags: "--prometheus-url=prometheus:9090", reason: "--prometheus-url: "},
		"long soak":          {flags: "--lock-release-delay=169h", reason: "--lock-release-delay: "},
		"unknown":            {flags: "--leave-alone=x", reason: "--leave-alone: this flag is not known"},
		"notification":       {flags: "--slack-channel=x", exact: true},
		"secret": {edit: func(p *corev1.PodSpec) {
			p.Containers[0].Env = []corev1.EnvVar{{Name: "KURED_CONCURRENCY", ValueFrom: &corev1.EnvVarSource{}}}
		}, reason: "--concurrency: its value comes from a Secret"},
		"environment": {edit: func(p *corev1.PodSpec) { p.Containers[0].EnvFrom = make([]corev1.EnvFromSource, 1) }, reason: "envFrom: "},
	} {
		d := kuredWith(strings.Fields(c.flags)...)
		if c.edit != nil {
			c.edit(&d.Spec.Template.Spec)
		}
		m, err := FromKured(d, c.nodes)
		if err != nil {
			t.Fatal(err)
		}
		if isExact := m.NodeOp.Spec.Suspend == nil; isExact != c.exact {
			t.Errorf("%s: exact is %v, gaps %v", name, isExact, m.Gaps)
		}
		isNamed := slices.ContainsFunc(m.Gaps, func(g Gap) bool {
			return strings.HasPrefix(g.Field+": "+g.Text, c.reason) && strings.Contains(g.Text, "suspend: true")
		})
		if isNamed == c.exact {
			t.Errorf("%s: no gap begins with %q: %v", name, c.reason, m.Gaps)
		}
	}
	m, err := FromKured(kuredWith("--blocking-pod-selector=app=db,!test", "--drain-pod-selector=app"), nil)
	if err != nil {
		t.Fatal(err)
	}
	drain := m.NodeOp.Spec.DrainOptions
	if blocks, tests := drain.PodNonInterruptLabels, drain.PodNonInterruptLabels.MatchExpressions; blocks.MatchLabels["app"] != "db" || len(tests) != 1 ||
		tests[0].Operator != metav1.LabelSelectorOpDoesNotExist || drain.Wait != v1alpha1.WaitBeforeCordon || len(drain.PodSelector.MatchExpressions) != 1 {
		t.Errorf("the drain is %+v", drain)
	}
}

func kuredWith(flags ...string) *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kured"}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Image: "registry.local:5000/kured@sha256:0", Command: []string{"/usr/bin/kured"}, Args: flags}}
	return d
}

func TestKuredFlags(t *testing.T) {
	m, err := FromKured(kuredWith("--reboot-sentinel-command=needs-restarting -r", "--lock-ttl=45m", "--alert-filter-match-only", "--prometheus-url", "http://p",
		"--alert-filter-regexp='Disk'", "--concurrency=many", "--reboot-days=mon", "--reboot-days=someday"), nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, policy := m.NodeOp.Spec, m.Policy.Spec
	if got, want := spec.Preflight.Command[2], `chroot "$HOST_DIR" needs-restarting -r || echo 'no reboot is required' > /dev/termination-log`; got != want {
		t.Errorf("the check is %s, want %s", got, want)
	}
	if *spec.RebootTimeoutSeconds != 2700 || policy.Default.Budget.Count != nil || *policy.Default.Budget.Percent != 100 || *spec.Concurrency != 1 {
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
