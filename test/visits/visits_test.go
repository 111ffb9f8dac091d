// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// TestStopwatch: a visit begins with the admission, and ends when the node is complete and schedulable.
func TestStopwatch(t *testing.T) {
	s := newStopwatch("demo", []string{"a", "b"})
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	see := func(second int, name, status string, held bool) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.PrefixStatus + "demo": status}}}
		n.Spec.Unschedulable = held
		s.see(n, at(second))
	}
	see(1, "a", "waiting", false)
	see(2, "a", "complete", false) // of the generation before
	see(3, "a", "in_progress", false)
	see(4, "other", "in_progress", true)
	see(5, "a", "in_progress", true)
	see(6, "a", "in_progress", true)
	see(8, "a", "complete", true)
	see(9, "a", "complete", false)
	see(10, "a", "complete", false)
	see(11, "b", "in_progress", false)
	select {
	case <-s.done:
		t.Fatal("done before all nodes are")
	default:
	}
	see(15, "b", "complete", false)
	<-s.done
	want := []visit{{began: at(3), ended: at(9), cordoned: at(5), opened: at(9)}, {began: at(11), ended: at(15)}}
	if diff := cmp.Diff(want, s.list(), cmp.AllowUnexported(visit{})); diff != "" {
		t.Error(diff)
	}
}

func resultOf(kind, layout, images string, seconds, held int) result {
	begin := time.Unix(0, 0)
	v := visit{began: begin, ended: begin.Add(time.Duration(seconds) * time.Second)}
	if held > 0 {
		v.cordoned, v.opened = begin, begin.Add(time.Duration(held)*time.Second)
	}
	return result{kind: kind, layout: layout, images: images, visits: []visit{v, v}}
}

func TestTableAndBounds(t *testing.T) {
	results := []result{
		resultOf("chain", compatible, warm, 32, 0), resultOf("chain", compact, warm, 8, 0),
		resultOf("service", compatible, warm, 10, 8), resultOf("service", compact, warm, 6, 4),
		resultOf("reboot", compatible, cold, 40, 20), resultOf("reboot", compact, cold, 30, 20),
	}
	const want = `| On each node | Pods | Images | Per node | Cordoned |
|---|---|---|---|---|
| 5 packages in a chain | Compatible | warm | 32.0 s | – |
| 5 packages in a chain | Compact | warm | 8.0 s (25 %) | – |
| 1 package that restarts a service | Compatible | warm | 10.0 s | 8.0 s |
| 1 package that restarts a service | Compact | warm | 6.0 s (60 %) | 4.0 s (50 %) |
| 5 packages in a chain, and a reboot | Compatible | cold | 40.0 s | 20.0 s |
| 5 packages in a chain, and a reboot | Compact | cold | 30.0 s (75 %) | 20.0 s (100 %) |
`
	if diff := cmp.Diff(want, formatTable(results)); diff != "" {
		t.Error(diff)
	}
	if err := checkBounds(results); err != nil {
		t.Error(err)
	}
	results[1] = resultOf("chain", compact, warm, 9, 0)
	results[3] = resultOf("service", compact, warm, 6, 5)
	err := checkBounds(results)
	if err == nil || strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(), "Compact takes 28 % of Compatible, and at most 25 % are promised") {
		t.Error(err)
	}
}

func TestManifests(t *testing.T) {
	for _, kind := range kindNames() {
		var s struct {
			Spec struct {
				Packages map[string]v1alpha1.Package
			}
		}
		if err := yaml.UnmarshalStrict([]byte(manifest("m", kind)), &map[string]any{}); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(manifest("m", kind)), &s); err != nil {
			t.Fatal(err)
		}
		interrupts := 0
		for _, p := range s.Spec.Packages {
			if p.Interrupt != nil {
				interrupts++
			}
		}
		if len(s.Spec.Packages) == 0 || (kind == "chain") != (interrupts == 0) {
			t.Errorf("%s: %+v", kind, s)
		}
	}
}

func TestSettings(t *testing.T) {
	set, err := readSettings([]string{"-layouts", "Compact", "-visits", "chain,reboot", "-images", "warm"})
	if err != nil || len(set.layouts) != 1 || len(set.kinds) != 2 || len(set.images) != 1 || set.runs != 1 {
		t.Errorf("%+v %v", set, err)
	}
	for _, args := range [][]string{{"-layouts", "Small"}, {"-visits", ""}, {"-images", "hot"}, {"-runs", "0"}, {"more"}} {
		if _, err := readSettings(args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
