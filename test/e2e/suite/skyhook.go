// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Skyhook is what tests read of a Skyhook.
type Skyhook struct {
	Metadata struct{ Generation int64 }
	Status   struct {
		Status             string
		ObservedGeneration int64
		Conditions         []struct{ Type, Status, Reason, Message string }
	}
}

// Manifest is a Skyhook for the nodes that have the label e2e=NAME.
func Manifest(name, spec, packages string) string {
	return fmt.Sprintf(`
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: %[1]s}
spec:
  nodeSelectors: {matchLabels: {e2e: %[1]s}}%s
  packages: %s
`, name, spec, packages)
}

// Get reads an object into a value that has the fields of interest.
func (c *Cluster) Get(into any, args ...string) error {
	out, err := c.TryKubectl("", append([]string{"get", "-o", "json"}, args...)...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), into)
}

// Condition returns a condition of the Skyhook.
func (s *Skyhook) Condition(conditionType string) (status, reason, message string) {
	for _, c := range s.Status.Conditions {
		if c.Type == conditionType {
			return c.Status, c.Reason, c.Message
		}
	}
	return "", "", ""
}

// EventuallySkyhook waits until accept holds for a Skyhook.
func (c *Cluster) EventuallySkyhook(t *testing.T, name, what string, accept func(*Skyhook) bool) {
	t.Helper()
	Eventually(t, "Skyhook "+name+" "+what, func() error {
		var s Skyhook
		err := c.Get(&s, "skyhook", name)
		if err == nil && !accept(&s) {
			err = fmt.Errorf("generation %d: %+v", s.Metadata.Generation, s.Status)
		}
		return err
	})
}

// WaitComplete waits until a Skyhook is complete for its current generation.
func (c *Cluster) WaitComplete(t *testing.T, name string) {
	t.Helper()
	c.EventuallySkyhook(t, name, "is complete", func(s *Skyhook) bool {
		ready, _, _ := s.Condition("Ready")
		return s.Status.Status == "complete" && s.Status.ObservedGeneration == s.Metadata.Generation && ready == "True"
	})
}

// WaitErroring waits until a Skyhook fails with a message that contains why.
func (c *Cluster) WaitErroring(t *testing.T, name, why string) {
	t.Helper()
	c.EventuallySkyhook(t, name, "fails: "+why, func(s *Skyhook) bool {
		_, _, message := s.Condition("Ready")
		return s.Status.Status == "erroring" && strings.Contains(message, why)
	})
}

// RemoveSkyhook deletes a Skyhook, checks that no node is cordoned or has anything of it but the record of packages that stay,
// and makes the nodes forget that record, so that the next test with this name begins anew.
func (c *Cluster) RemoveSkyhook(t *testing.T, name string) {
	t.Helper()
	c.DeleteSkyhook(t, name)
	forget := []string{"annotate", "nodes"}
	forget = append(forget, c.nodes...)
	for _, prefix := range recordPrefixes {
		forget = append(forget, prefix+name+"-")
	}
	c.Kubectl(t, forget...)
}

// DeleteSkyhook deletes a Skyhook and checks the nodes as RemoveSkyhook does, but keeps the record of packages that stay.
func (c *Cluster) DeleteSkyhook(t *testing.T, name string) {
	t.Helper()
	c.Kubectl(t, "delete", "skyhook", name, "--timeout="+Timeout.String())
	for _, node := range c.nodes {
		c.requireClean(t, node, name)
	}
}

// recordPrefixes are the annotations that a deleted Skyhook leaves for packages that stay on the host.
var recordPrefixes = []string{"skyhook.nvidia.com/nodeState_", "skyhook.nvidia.com/record_", "skyhook.nvidia.com/version_"}

func (c *Cluster) requireClean(t *testing.T, node, name string) {
	t.Helper()
	var n struct {
		Metadata struct{ Annotations, Labels map[string]string }
		Spec     struct{ Unschedulable bool }
		Status   struct{ Conditions []struct{ Type string } }
	}
	if err := c.Get(&n, "node", node); err != nil {
		t.Fatal(err)
	}
	if n.Spec.Unschedulable && !c.hasOtherTest(t, node) {
		t.Errorf("node %s was left cordoned by Skyhook %s", node, name)
	}
	for _, keys := range []map[string]string{n.Metadata.Annotations, n.Metadata.Labels} {
		for k := range keys {
			isRecord := slices.ContainsFunc(recordPrefixes, func(prefix string) bool { return k == prefix+name })
			if strings.HasPrefix(k, "skyhook.nvidia.com/") && strings.HasSuffix(k, "_"+name) && !isRecord {
				t.Errorf("node %s still carries %s", node, k)
			}
		}
	}
	for _, condition := range n.Status.Conditions {
		if strings.HasPrefix(condition.Type, "skyhook.nvidia.com/"+name+"/") {
			t.Errorf("node %s still has the condition %s", node, condition.Type)
		}
	}
}
