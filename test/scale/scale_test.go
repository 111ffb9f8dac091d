// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// TestParsePhases: phases run in their own order, and an unusable list is refused with the remedy.
func TestParsePhases(t *testing.T) {
	found, err := parsePhases("rest,config,install")
	if err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, p := range found {
		names += p.name + " "
	}
	if names != "install config rest " {
		t.Errorf("the phases are %s", names)
	}
	for list, want := range map[string]string{"upgrade": "upgrade needs install: add it", "install,reset": `there is no phase "reset": use some of install,`} {
		if _, err := parsePhases(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("-phases %s: %v, want %s", list, err, want)
		}
	}
}

// TestQuantile: only observations after the first sample count.
func TestQuantile(t *testing.T) {
	before := readSample(t, `# TYPE h histogram
h_bucket{le="1"} 100
h_bucket{le="2"} 100
h_bucket{le="+Inf"} 100
h_sum 1
h_count 100
`)
	after := readSample(t, `# TYPE h histogram
h_bucket{le="1"} 106
h_bucket{le="2"} 109
h_bucket{le="+Inf"} 110
h_sum 9
h_count 110
`)
	for _, c := range []struct {
		share   float64
		bound   time.Duration
		isAbove bool
	}{{0.5, time.Second, false}, {0.9, 2 * time.Second, false}, {0.99, 2 * time.Second, true}} {
		if bound, isAbove := quantile(before, after, "h", "", c.share); bound != c.bound || isAbove != c.isAbove {
			t.Errorf("quantile %.2f is %s, above: %v", c.share, bound, isAbove)
		}
	}
}

func readSample(t *testing.T, text string) *sample {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return &sample{families: families}
}

// TestGroupDigits: as the documentation writes numbers.
func TestGroupDigits(t *testing.T) {
	for n, want := range map[int]string{100: "100", 1000: "1,000", 10050: "10,050"} {
		if got := groupDigits(n); got != want {
			t.Errorf("%d is written %s", n, got)
		}
	}
}
