// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Host is what was read on a host at one moment.
type Host struct {
	Boots      int               // since the run began, the first one included
	Starts     int               // of the counted service, likewise
	Interrupts []Interrupt       // as the agent recorded them
	Versions   map[string]string // version of each package whose script has run to its end, by SKYHOOK.PACKAGE
	Installed  map[string]string // version of each package that the agent's record says is installed, likewise
}

// Interrupt is the agent's record of an interrupt.
type Interrupt struct {
	ID    string `json:"id"`
	Type  string `json:"type"`
	State string `json:"state"`
	From  string `json:"from"`
	To    string `json:"to"`
	Units []struct {
		Name string `json:"name"`
	} `json:"units"`
}

// The counted service, and what a host runs to tell its state. ParseHost reads the output. While a full disk hides the files of the
// packages, the script tells only a part, which ParseHost refuses.
const (
	CountedService = "chaos-counted.service"
	HostScript     = `
trap 'mountpoint -q /var/lib/chaos || echo end' EXIT
mountpoint -q /var/lib/chaos && exit
echo "boots $(cat /var/log/chaos/boots | wc -l)"
echo "starts $(cat /var/log/chaos/starts | wc -l)"
for f in /var/lib/chaos/*.version; do test -f "$f" && echo "version $(basename "$f" .version) $(cat "$f")"; done
find /var/lib/skyhook /etc/skyhook -path '*/interrupts/records/*.json' 2>/dev/null | while read -r f; do echo "interrupt $(tr -d '\n' < "$f")"; done
for f in /var/lib/skyhook/*/records/*/record.json; do if test -f "$f"; then echo "record $(basename "${f%/records/*}") $(tr -d '\n' < "$f")"; fi; done`
)

// ParseHost reads the output of HostScript.
func ParseHost(text string) (Host, error) {
	h := Host{Versions: map[string]string{}, Installed: map[string]string{}}
	isComplete := false
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		var err error
		switch word {
		case "boots":
			h.Boots, err = strconv.Atoi(rest)
		case "starts":
			h.Starts, err = strconv.Atoi(rest)
		case "version":
			name, version, _ := strings.Cut(rest, " ")
			h.Versions[name] = version
		case "interrupt":
			var i Interrupt
			err = json.Unmarshal([]byte(rest), &i)
			h.Interrupts = append(h.Interrupts, i)
		case "record":
			err = h.addRecord(rest)
		case "end":
			isComplete = true
		default:
			err = fmt.Errorf("unknown word %q", word)
		}
		if err != nil {
			return Host{}, fmt.Errorf("reading %q of a host: %w", strings.TrimSpace(line), err)
		}
	}
	if !isComplete {
		return Host{}, fmt.Errorf("reading a host: it told only a part: %q", text)
	}
	return h, nil
}

// addRecord adds what the agent's record of a package says: SKYHOOK, a space, and the record.
func (h *Host) addRecord(text string) error {
	skyhook, raw, _ := strings.Cut(text, " ")
	var record struct {
		Package   string `json:"package"`
		Installed struct {
			Version string `json:"version"`
			Release string `json:"release"`
		} `json:"installed"`
	}
	if err := json.Unmarshal([]byte(raw), &record); err != nil {
		return err
	}
	if record.Installed.Version != "" && record.Installed.Version != "uninstalled" {
		h.Installed[skyhook+"."+record.Package] = record.Installed.Release
	}
	return nil
}

// hostView is what was seen of a host so far.
type hostView struct {
	boots int // by others than the product
	ids   map[string]Interrupt
}

func (o *Observer) host(name string) *hostView {
	if o.hosts[name] == nil {
		o.hosts[name] = &hostView{ids: map[string]Interrupt{}}
	}
	return o.hosts[name]
}

// ExpectBoot says that somebody else boots a node. It is called before that happens.
func (o *Observer) ExpectBoot(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.host(node).boots++
}

// Interrupts counts the interrupts of a node by type, all that were ever recorded there.
func (o *Observer) Interrupts(node string) map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	counts := map[string]int{}
	for _, i := range o.host(node).ids {
		counts[i.Type]++
	}
	return counts
}

// Want says which version of a package people want from now on, none if it is to be uninstalled. A host may have got there before the
// node's record says so.
func (o *Observer) Want(skyhook, name, version string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wanted[skyhook+"."+name] = version
}

// HostRead is told what is on a host, with the annotations of its node as the API server had them before and after that was read.
func (o *Observer) HostRead(at time.Time, node string, before, after map[string]string, h Host) {
	o.mu.Lock()
	defer o.mu.Unlock()
	view := o.host(node)
	for _, i := range h.Interrupts {
		view.ids[i.ID] = i
	}
	o.checkOnce(at, node, h)
	o.checkRecord(at, node, before, after, h)
}

// checkOnce checks that a host did not boot, and did not restart the counted service, more often than interrupts and others made it.
func (o *Observer) checkOnce(at time.Time, node string, h Host) {
	view := o.host(node)
	reboots, restarts := 0, 0
	for _, id := range slices.Sorted(maps.Keys(view.ids)) {
		i := view.ids[id]
		switch i.Type {
		case "reboot":
			reboots++
			if i.State == "done" && i.From == i.To {
				o.add(at, RuleOnce, "%s: reboot %s is recorded as done without a boot: from %q to %q", node, id, i.From, i.To)
			}
		case "service":
			restarts++
		}
	}
	if h.Boots-1 > reboots+view.boots {
		o.add(at, RuleOnce, "%s booted %d times after the first, for %d reboots of the product and %d of others", node, h.Boots-1, reboots, view.boots)
	}
	if h.Starts > h.Boots+restarts {
		o.add(at, RuleOnce, "%s started the counted service %d times, in %d boots, for %d restarts of the product", node, h.Starts, h.Boots, restarts)
	}
}

// nodeState is the annotation nodeState of a Skyhook: by NAME|VERSION.
type nodeState map[string]struct{ Name, Version, Stage, State string }

// checkRecord checks that what the node records as done is done on the host and recorded there, and that the node records everything
// that is installed. What changed while the host was read is left out, and so is what a compact pod may have installed in its later stages
// while no operator recorded it.
func (o *Observer) checkRecord(at time.Time, node string, before, after map[string]string, h Host) {
	const prefix = "skyhook.nvidia.com/nodeState_"
	for key, raw := range before {
		skyhook, isState := strings.CutPrefix(key, prefix)
		if !isState || after[key] != raw {
			continue
		}
		var state nodeState
		if err := json.Unmarshal([]byte(raw), &state); err != nil {
			o.add(at, RuleRecord, "%s: nodeState of %s cannot be read: %v", node, skyhook, err)
			continue
		}
		recorded := map[string]bool{}
		for _, p := range state {
			marker := skyhook + "." + p.Name
			recorded[marker] = true
			if !hasApplied(p.Stage, p.State) {
				continue
			}
			isWrong := func(version string) bool {
				wanted, isKnown := o.wanted[marker]
				isAhead := isKnown && version == wanted
				return version != p.Version && !isAhead
			}
			if done := h.Versions[marker]; isWrong(done) {
				o.add(at, RuleRecord, "%s records %s %s at %s %s, and its script on the host has done %q", node, marker, p.Version, p.Stage, p.State, done)
			}
			if installed := h.Installed[marker]; isWrong(installed) {
				o.add(at, RuleRecord, "%s records %s %s at %s %s, and the agent has recorded %q as installed", node, marker, p.Version, p.Stage, p.State, installed)
			}
		}
		status := before["skyhook.nvidia.com/status_"+skyhook]
		if isAtWork := status != "" && status != "complete"; isAtWork && slices.Contains(o.setup.Compact, skyhook) {
			continue
		}
		for marker, version := range h.Installed {
			if strings.HasPrefix(marker, skyhook+".") && !recorded[marker] {
				o.add(at, RuleRecord, "the agent has recorded %s %s as installed on %s, and the node records nothing of it", marker, version, node)
			}
		}
	}
}

// hasApplied reports whether a package whose record is at this stage was applied or upgraded before, and not yet uninstalled.
func hasApplied(stage, state string) bool {
	switch stage {
	case "apply", "upgrade":
		return state == "complete"
	case "config", "interrupt", "post-interrupt":
		return true
	}
	return false
}
