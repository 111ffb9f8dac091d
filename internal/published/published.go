// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package published has the repositories above our images and above our chart. Makefile and scripts read them here.
package published

// The repositories.
const (
	Images = "ghcr.io/skyhook-k8s/skyhook"
	Charts = "ghcr.io/skyhook-k8s/charts"
)
