// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package published has the names under which this project publishes. Makefile and scripts read them from this file.
package published

const (
	// Images is the repository above operator, agent, shell and packages/NAME, and Charts the one above the chart.
	Images = "ghcr.io/skyhook-k8s/skyhook"
	Charts = "ghcr.io/skyhook-k8s/charts"
)
