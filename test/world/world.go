// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package world is a whole cluster in memory for random runs of the operator: an API server, a cache that lags behind
// it, kubelets, the controllers of Jobs and of garbage, and people who change things between any two requests.
//
// What runs in it is the operator itself: front ends, engine, back end and loop. Everything follows from a seed, so a run
// that fails can be repeated, and its events can be left out one by one until only those remain that matter.
//
//	Server   objects, versions, patches, finalizers, grace periods, the schema of our CRDs
//	Cache    what a leader reads: kinds lag behind the Server independently of each other
//	Run      one seed: the cluster, its leader, the events, the invariants
package world
