// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package chart embeds the CRDs of the chart.
package chart

import "embed"

// CRDs are the generated files, below files/crds.
//
//go:embed files/crds/*.yaml
var CRDs embed.FS
