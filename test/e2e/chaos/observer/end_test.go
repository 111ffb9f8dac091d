// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"reflect"
	"strings"
	"testing"
)

const tree = `d 755 root root /etc 
f 644 root root /etc/chaos.conf 
l 777 root root /etc/link ../usr/lib/link
d 700 root root /var/lib/skyhook/kernel/2cfbb2a4-9e4c-4a07-9b6c-0f1e3c9b7d11_driver_1.0.0_3 
f 600 root root /var/lib/skyhook/kernel/interrupts/records/4f1c0a2b9d8e7f60-1b2c3d4e5f607182.json 
f 600 root root /var/lib/skyhook/nodeop/interrupts/records/chaos-operation-n1-9f9g2-1b2c3d4e5f607182.json 
3f786850e387550fdab836ed7e6dc881de23001b00000000000000000000abcd  /etc/chaos.conf
end
`

func TestParseTree(t *testing.T) {
	got, err := ParseTree(tree)
	want := map[string]string{
		"/etc":            "d 755 root root",
		"/etc/chaos.conf": "f 644 root root 3f786850e387550fdab836ed7e6dc881de23001b00000000000000000000abcd",
		"/etc/link":       "l 777 root root ../usr/lib/link",
		"/var/lib/skyhook/kernel/<uid>_driver_1.0.0-<number>":                                  "d 700 root root",
		"/var/lib/skyhook/kernel/interrupts/records/<digest>-<digest>.json":                    "f 600 root root",
		"/var/lib/skyhook/nodeop/interrupts/records/chaos-operation-n1-<suffix>-<digest>.json": "f 600 root root",
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("it was read as %q, %v", got, err)
	}
	if _, err := ParseTree(strings.TrimSuffix(tree, "end\n")); err == nil {
		t.Error("a list that was cut off was accepted")
	}
}

func TestMarks(t *testing.T) {
	got := Marks(map[string]string{
		"skyhook.nvidia.com/nodeState_again":  `{"a|1":{"state":"complete","restarts":12},"b|1":{"state":"complete"}}`,
		"skyhook.nvidia.com/nodeState_kernel": "{}", "skyhook.nvidia.com/record_kernel": "{...}", "operator.kairos.io/record-0123456789ab": "{}", "volumes.kubernetes.io/x": "true",
	}, map[string]string{"skyhook.nvidia.com/status_kernel": "complete", "chaos": "yes"})
	want := map[string]string{
		"skyhook.nvidia.com/nodeState_again":  `{"a|1":{"state":"complete"},"b|1":{"state":"complete"}}`,
		"skyhook.nvidia.com/nodeState_kernel": "{}", "skyhook.nvidia.com/record_kernel": "present", "operator.kairos.io/record-<digest>": "present",
		"skyhook.nvidia.com/status_kernel": "complete",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the marks are %v, want %v", got, want)
	}
}

func TestDifferences(t *testing.T) {
	undisturbed := End{
		Files:      map[string]string{"/etc/a": "f 644", "/etc/b": "f 644"},
		Marks:      map[string]string{"skyhook.nvidia.com/status_kernel": "complete"},
		Interrupts: map[string]int{"reboot": 2},
	}
	if got := Differences(undisturbed, undisturbed); len(got) > 0 {
		t.Errorf("equal ends differ: %v", got)
	}
	got := Differences(undisturbed, End{
		Files:      map[string]string{"/etc/a": "f 600", "/etc/c": "f 644"},
		Marks:      map[string]string{"skyhook.nvidia.com/status_kernel": "erroring"},
		Interrupts: map[string]int{"reboot": 3},
	})
	want := []string{
		`file /etc/a is "f 600" instead of "f 644"`,
		`file /etc/b is missing; it was "f 644"`,
		`file /etc/c should not be there: "f 644"`,
		`mark skyhook.nvidia.com/status_kernel is "erroring" instead of "complete"`,
		`number of interrupts reboot is "3" instead of "2"`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the differences are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
