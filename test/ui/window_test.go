// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

const windowObjects = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: minute}
spec:
  default: {budget: {percent: 100}, strategy: {fixed: {initialBatch: 2}}}
  windows: {timeZone: UTC, open: [{schedule: "%s * * *", duration: 1m}]}
---
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: gpu-stack}
spec:
  deploymentPolicy: minute
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages:
    tuning: {version: 1.2.0, image: registry.example/packages/tuning}
`

// textInUTC is what the page says, with times as their titles have them.
const textInUTC = `(() => {
  const main = document.querySelector('main').cloneNode(true);
  main.querySelectorAll('time[title]').forEach((time) => { time.textContent = time.title; });
  return main.textContent;
})()`

// TestWindow: open pages follow a window that opens and closes, which no object in the cluster says.
func TestWindow(t *testing.T) {
	t.Parallel()                                                                           // no other test that runs with it needs the API server
	opens := time.Now().UTC().Add(30 * time.Second).Truncate(time.Minute).Add(time.Minute) // in 30 to 90 seconds
	closes := opens.Add(time.Minute)
	b := startBrowser(t)
	c := startRollout(t, 2, fmt.Sprintf(windowObjects, opens.Format("4 15")))
	address, _ := serve(t, "--kubeconfig", c.kubeconfig, "-n", c.Namespace)
	t.Cleanup(func() { b.expectProblems = true }) // an open page notices that the plugin ends

	open := func(path string) {
		b.open(address + path)
		b.waitVisible("main h1")
		b.run(chromedp.Evaluate(`window.mark = 1`, nil))
	}
	waitFor := func(text string, earliest time.Time) {
		t.Helper()
		waitUntil(t, text, func() bool {
			return strings.Contains(evaluate[string](b, textInUTC), text)
		})
		if late := time.Since(earliest); late < 0 || late > 2*slow*time.Second {
			t.Errorf("the page says %q %s after %s", text, late.Round(time.Millisecond), earliest.Format(time.TimeOnly))
		}
		if !evaluate[bool](b, `window.mark === 1`) {
			t.Error("the page was loaded again")
		}
	}
	began := time.Now()
	open("rollouts/skyhook/gpu-stack")
	waitFor("Window:", began)
	waitFor("0 of 2 nodes complete", began)
	open("policies")
	waitFor("Closed now; it opens at "+opens.Format("2006-01-02 15:04:05"), time.Now())
	waitFor("Open now; it closes at "+closes.Format("2006-01-02 15:04:05"), opens)
	open("rollouts/skyhook/gpu-stack")
	waitFor("2 of 2 nodes complete", opens)
	open("policies")
	waitFor("Closed now; it opens at "+opens.AddDate(0, 0, 1).Format("2006-01-02 15:04:05"), closes)
}
