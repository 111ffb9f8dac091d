// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// maxDeadline is the longest deadline of a stage.
const maxDeadline = 168 * time.Hour

// fieldConverter changes a spec in place and collects what is lost.
type fieldConverter struct {
	object string
	spec   map[string]any
	gaps   []Gap
}

func (c *fieldConverter) addGap(field, format string, args ...any) {
	c.gaps = append(c.gaps, Gap{Object: c.object, Field: field, Text: fmt.Sprintf(format, args...)})
}

// convertToSkyhook changes the spec of a NodeWright into that of a Skyhook.
func (c *fieldConverter) convertToSkyhook() {
	if drain, ok := c.spec["drainConfig"].(map[string]any); ok {
		c.spec["drain"] = c.drainOfSkyhook(drain)
	}
	delete(c.spec, "drainConfig")
	if c.spec["runtimeRequiredCordonAfter"] == true {
		c.addGap("spec.runtimeRequiredCordonAfter", "new nodes become schedulable as soon as they are complete; nodes that are cordoned now stay cordoned")
	}
	delete(c.spec, "runtimeRequiredCordonAfter")
	c.eachPackage(func(path string, p map[string]any) {
		timeout, ok := p["stageTimeout"]
		delete(p, "stageTimeout")
		if !ok {
			return
		}
		deadline, err := parseDuration(timeout)
		switch {
		case err != nil:
			c.addGap(path+".stageTimeout", "%v; the default of 1h applies", err)
			return
		case deadline == 0 || deadline > maxDeadline:
			c.addGap(path+".stageTimeout", "a stage is limited to %s here, and was to %v", shortDuration(maxDeadline), orNone(deadline))
			deadline = maxDeadline
		case deadline < time.Second:
			deadline = time.Second
		}
		p["deadline"] = deadline.String()
	})
}

func (c *fieldConverter) drainOfSkyhook(from map[string]any) map[string]any {
	to := map[string]any{}
	for _, key := range []string{"deleteEmptyDirData", "force"} {
		if v := from[key]; v != nil {
			to[key] = v
		}
	}
	if from["disableEviction"] == true {
		c.addGap("spec.drainConfig.disableEviction", "pods are evicted, which PodDisruptionBudgets can refuse; drain.onTimeout Force with a timeout deletes what is left")
	}
	if from["ignoreDaemonSets"] == false {
		c.addGap("spec.drainConfig.ignoreDaemonSets", "pods of DaemonSets stay on the node")
	}
	if v := from["timeout"]; v != nil {
		if timeout, err := parseDuration(v); err != nil {
			c.addGap("spec.drainConfig.timeout", "%v; the drain has no limit", err)
		} else if timeout > 0 {
			to["timeout"] = max(timeout, time.Second).String()
		}
	}
	if v := from["gracePeriod"]; v != nil {
		grace, err := parseDuration(v)
		if err != nil || grace < time.Second {
			c.addGap("spec.drainConfig.gracePeriod", "at least one second is possible, and it is %v; the grace period of each pod applies", v)
		} else {
			to["gracePeriodSeconds"] = int64(min(grace, 24*time.Hour) / time.Second)
		}
	}
	return to
}

// convertToNodeWright changes the spec of a Skyhook into that of a NodeWright.
func (c *fieldConverter) convertToNodeWright() {
	if drain, ok := c.spec["drain"].(map[string]any); ok {
		c.spec["drainConfig"] = c.drainOfNodeWright(drain)
	}
	delete(c.spec, "drain")
	c.eachPackage(func(path string, p map[string]any) {
		if deadline, ok := p["deadline"]; ok {
			p["stageTimeout"] = deadline
			delete(p, "deadline")
		}
		if _, ok := p["retries"]; ok {
			c.addGap(path+".retries", "failed stages are retried as often as the operator's JOB_BACKOFF_LIMIT says")
			delete(p, "retries")
		}
	})
}

func (c *fieldConverter) drainOfNodeWright(from map[string]any) map[string]any {
	to := map[string]any{}
	for _, key := range []string{"deleteEmptyDirData", "force", "timeout"} {
		if v := from[key]; v != nil {
			to[key] = v
		}
	}
	if v := from["onTimeout"]; v != nil && v != "Wait" {
		c.addGap("spec.drain.onTimeout", "after the timeout the node stays cordoned and is erroring")
	}
	if v, ok := from["gracePeriodSeconds"].(int64); ok {
		to["gracePeriod"] = (time.Duration(v) * time.Second).String()
	}
	return to
}

// dropPolicyFields removes the fields that only our policies have.
func (c *fieldConverter) dropPolicyFields() {
	if scope, ok := c.spec["scope"]; ok {
		if scope != "Skyhook" {
			c.addGap("spec.scope", "each NodeWright has a budget of its own")
		}
		delete(c.spec, "scope")
	}
	for _, field := range []struct{ name, means string }{
		{"paused", "pause each NodeWright instead"},
		{"soak", "a finished node counts at once"},
		{"maxUnavailablePerTopology", "racks and zones are not told apart"},
		{"windows", "nodes are started at any time"},
		{"health", "nothing is checked before further nodes are started"},
	} {
		if v, ok := c.spec[field.name]; ok {
			if v != false {
				c.addGap("spec."+field.name, "%s", field.means)
			}
			delete(c.spec, field.name)
		}
	}
}

func (c *fieldConverter) eachPackage(visit func(path string, p map[string]any)) {
	packages, _ := c.spec["packages"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		if p, ok := packages[name].(map[string]any); ok {
			visit("spec.packages."+name, p)
		}
	}
}

func parseDuration(v any) (time.Duration, error) {
	text, ok := v.(string)
	if !ok {
		return 0, fmt.Errorf("%v is not a duration", v)
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration of at least 0", text)
	}
	return d, nil
}

func orNone(d time.Duration) string {
	if d == 0 {
		return "nothing"
	}
	return shortDuration(d)
}

// shortDuration formats a duration without units that are zero.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
