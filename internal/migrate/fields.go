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

// The longest durations that our API accepts.
const (
	maxStageTimeout = 168 * time.Hour
	maxGracePeriod  = 24 * time.Hour
)

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
		c.fitDrain(drain)
	}
	c.eachPackage(func(path string, p map[string]any) {
		value, ok := p["stageTimeout"]
		if !ok {
			return
		}
		timeout, err := parseDuration(value)
		switch {
		case err != nil:
			c.addGap(path+".stageTimeout", "%v; the default of 1h applies", err)
			delete(p, "stageTimeout")
			return
		case timeout > maxStageTimeout:
			c.addGap(path+".stageTimeout", "a stage is limited to %s here, and was to %v", shortDuration(maxStageTimeout), timeout)
			timeout = maxStageTimeout
		case timeout > 0:
			timeout = max(timeout, time.Second)
		}
		p["stageTimeout"] = timeout.String()
	})
}

// fitDrain changes values of drainConfig that our API does not accept.
func (c *fieldConverter) fitDrain(drain map[string]any) {
	if drain["ignoreDaemonSets"] == false {
		c.addGap("spec.drainConfig.ignoreDaemonSets", "pods of DaemonSets are not evicted: the drain waits until their DaemonSets remove them")
	}
	if v := drain["timeout"]; v != nil {
		timeout, err := parseDuration(v)
		switch {
		case err != nil:
			c.addGap("spec.drainConfig.timeout", "%v; the drain has no limit", err)
			delete(drain, "timeout")
		case timeout > 0:
			drain["timeout"] = max(timeout, time.Second).String()
		}
	}
	if v := drain["gracePeriod"]; v != nil {
		grace, err := parseDuration(v)
		if err != nil {
			c.addGap("spec.drainConfig.gracePeriod", "%v; the grace period of each pod applies", err)
			delete(drain, "gracePeriod")
			return
		}
		drain["gracePeriod"] = min(grace, maxGracePeriod).String()
	}
}

// convertToNodeWright changes the spec of a Skyhook into that of a NodeWright.
func (c *fieldConverter) convertToNodeWright() {
	if drain, ok := c.spec["drainConfig"].(map[string]any); ok {
		if v := drain["onTimeout"]; v != nil && v != "Wait" {
			c.addGap("spec.drainConfig.onTimeout", "after the timeout the node stays cordoned and is erroring")
		}
		delete(drain, "onTimeout")
	}
	c.eachPackage(func(path string, p map[string]any) {
		if _, ok := p["retries"]; ok {
			c.addGap(path+".retries", "failed stages are retried as often as the operator's JOB_BACKOFF_LIMIT says")
			delete(p, "retries")
		}
	})
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
