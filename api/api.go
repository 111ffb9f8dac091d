// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package api holds no code of its own: below it are the wire types of both API groups, and beside this file the
// tests that prove the CRDs made from them on a real API server.
//
// The types carry everything an API server needs to know: schema, defaults, bounds and CEL rules, as markers. What
// one object cannot say about itself is found when it is compiled (docs/api-validation.md).
package api

//go:generate go tool -modfile=../go.tools.mod controller-gen object:headerFile=header.txt paths=./...
//go:generate go tool -modfile=../go.tools.mod controller-gen crd paths=./... output:crd:dir=../chart/files/crds
