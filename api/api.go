// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package api has no code of its own: its subdirectories hold the wire types of both API groups, and its tests run the
// generated CRDs on a real API server.
//
// The types carry the schema, defaults, bounds and CEL rules as markers. Rules that need more than one object are
// checked when an object is compiled (docs/api-validation.md).
package api

//go:generate go tool -modfile=../go.tools.mod controller-gen object:headerFile=header.txt paths=./...
//go:generate go tool -modfile=../go.tools.mod controller-gen crd paths=./... output:crd:dir=../chart/files/crds
