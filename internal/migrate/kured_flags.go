// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// kuredDefaults are kured's flags and their defaults. A flag is the environment variable KURED_<FLAG> too.
var kuredDefaults = map[string]string{
	"alert-filter-match-only": "false", "alert-filter-regexp": "", "alert-firing-only": "false", "annotate-nodes": "false",
	"blocking-pod-selector": "", "concurrency": "1", "drain-delay": "0", "drain-grace-period": "-1", "drain-pod-selector": "",
	"drain-timeout": "0", "ds-name": "kured", "ds-namespace": "kube-system", "end-time": "23:59:59", "force-reboot": "false",
	"lock-annotation": "weave.works/kured-node-lock", "lock-release-delay": "0", "lock-ttl": "0", "log-format": "text",
	"message-template-drain": "", "message-template-reboot": "", "message-template-uncordon": "", "metrics-host": "",
	"metrics-port": "8080", "node-id": "", "notify-url": "", "period": "1h", "post-reboot-node-labels": "",
	"pre-reboot-node-labels": "", "prefer-no-schedule-taint": "", "prometheus-url": "", "reboot-command": "/bin/systemctl reboot",
	"reboot-days": "", "reboot-delay": "0", "reboot-method": "command", "reboot-sentinel": "/var/run/reboot-required",
	"reboot-sentinel-command": "", "reboot-signal": "39", "skip-wait-for-delete-timeout": "0", "slack-channel": "",
	"slack-hook-url": "", "slack-username": "kured", "start-time": "0:00", "time-zone": "UTC",
}

// kuredGaps say what it means that a flag has no counterpart. None of them keeps a node from being rebooted: such a flag is converted, or
// suspends the NodeOp.
var kuredGaps = map[string]string{
	"annotate-nodes":               "nodes get no annotations of kured; status.nodeStatuses of the NodeOp shows when a node was rebooted",
	"drain-delay":                  "the drain begins when the node is cordoned",
	"force-reboot":                 "a node whose drain fails is not rebooted: it is released, and has failed",
	"lock-annotation":              "no lock is needed: the operator starts nodes within the budget of the policy",
	"message-template-drain":       "there are no notifications; see docs/metrics.md for alerts",
	"message-template-reboot":      "there are no notifications; see docs/metrics.md for alerts",
	"message-template-uncordon":    "there are no notifications; see docs/metrics.md for alerts",
	"metrics-host":                 "the operator has metrics of its own: docs/metrics.md",
	"metrics-port":                 "the operator has metrics of its own: docs/metrics.md",
	"notify-url":                   "there are no notifications; see docs/metrics.md for alerts",
	"post-reboot-node-labels":      "no labels are set",
	"pre-reboot-node-labels":       "no labels are set",
	"prefer-no-schedule-taint":     "no taint is set; the node that is worked on is cordoned",
	"reboot-command":               "the node is rebooted with its init system",
	"reboot-signal":                "the node is rebooted with its init system",
	"skip-wait-for-delete-timeout": "the drain waits until each pod is gone",
	"slack-channel":                "there are no notifications; see docs/metrics.md for alerts",
	"slack-hook-url":               "there are no notifications; see docs/metrics.md for alerts",
	"slack-username":               "there are no notifications; see docs/metrics.md for alerts",
}

// kuredBooleans are flags that need no value.
var kuredBooleans = []string{"alert-filter-match-only", "alert-firing-only", "annotate-nodes", "force-reboot"}

// kuredFlags are the values of flags that are set, in order.
type kuredFlags map[string][]string

// readKuredFlags reads the command line of a container, and then the environment variables of flags that it lacks. Variables
// whose value comes from elsewhere are in unknown.
func readKuredFlags(c *corev1.Container) (flags kuredFlags, unknown []string) {
	flags = kuredFlags{}
	words := slices.Concat(c.Command, c.Args)
	for i := 0; i < len(words); i++ {
		if !strings.HasPrefix(words[i], "-") {
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimLeft(words[i], "-"), "=")
		switch {
		case hasValue:
		case slices.Contains(kuredBooleans, name):
			value = "true"
		case i+1 < len(words):
			i++
			value = words[i]
		}
		flags[name] = append(flags[name], value)
	}
	for _, e := range c.Env {
		suffix, ok := strings.CutPrefix(e.Name, "KURED_")
		name := strings.ToLower(strings.ReplaceAll(suffix, "_", "-"))
		if _, known := kuredDefaults[name]; !ok || !known || name == "node-id" || flags[name] != nil {
			continue
		}
		if e.ValueFrom != nil {
			unknown = append(unknown, name)
			continue
		}
		flags[name] = []string{e.Value}
	}
	return flags, unknown
}

// get is the last value of a flag, or its default.
func (f kuredFlags) get(name string) string {
	if values := f[name]; len(values) > 0 {
		return unquote(values[len(values)-1])
	}
	return kuredDefaults[name]
}

// list is every value of a flag, split at commas.
func (f kuredFlags) list(name string) []string {
	var out []string
	for _, v := range f[name] {
		for _, item := range strings.Split(unquote(v), ",") {
			if item = strings.TrimSpace(item); item != "" {
				out = append(out, item)
			}
		}
	}
	return out
}

// isSet reports whether a flag has another value than its default.
func (f kuredFlags) isSet(name string) bool { return f.get(name) != kuredDefaults[name] }

// unquote removes quotes that a manifest put around a value.
func unquote(text string) string {
	if n := len(text); n > 1 && text[0] == text[n-1] && (text[0] == '"' || text[0] == '\'') {
		return text[1 : n-1]
	}
	return text
}
