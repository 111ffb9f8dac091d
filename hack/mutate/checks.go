// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// checks are the arguments of go test that have to notice a fault in a folder or file, the fast ones first.
var checks = []struct {
	folder string
	tests  [][]string
}{
	{"internal/rollout/", [][]string{{"./internal/rollout/..."}, worldRuns}},
	{"internal/node/", [][]string{{"./internal/node/..."}, {"./internal/skyhook/...", "./internal/nodeop/..."}}},
	{"internal/policy/", [][]string{{"./internal/policy"}, {"./internal/skyhook"}}},
	{"internal/cluster/ledger.go", [][]string{{"./internal/cluster", "-run", "TestTwoOperators"}, worldRuns}},
	{"internal/cluster/metadata.go", [][]string{{"./internal/cluster", "-run", "TestStageSeesLabels"}}},
	{"internal/cluster/c", [][]string{{"./internal/cli", "-run", "TestFrom/profile"}, {"./internal/cluster", "-run", "TestAvoid|TestHandsOff"}}},
	{"internal/cluster/", [][]string{{"./internal/cluster/drain", "./internal/cluster/gates", "./internal/cluster/writecache"}, {"./internal/cluster", "-run", "TestSetLabels|TestHandover"}, worldRuns}},
	{"internal/controller/", [][]string{{"./internal/controller", "-run", "TestLeaseTerms|TestHolders|TestTwoOperatorsStart|TestTwoInstallations|TestRemovalGuard|TestLeaderWithoutRights"}}},
	{"internal/cli/preview/", [][]string{{"./internal/cli", "-run", "TestFrom/waves"}}},
	{"internal/view/", [][]string{{"./internal/view"}, {"./internal/cli", "-run", "TestFrom"}}},
	{"internal/agent/", [][]string{{"./internal/agent/delivery", "./internal/agent/host", "./internal/agent/overlay", "./internal/agent/record", "./internal/agent/retain", "./internal/agent/step"}, {"./internal/agent", "-run", "TestStart$|TestScenarios/previous-file"}}},
}

// worldRuns are random runs of a whole cluster.
var worldRuns = []string{"./test/world", "-run", "TestWorld|TestServer", "-seeds", "250"}

// testsFor returns the tests for a file: without an entry those of its folder in internal, and below.
func testsFor(file string) [][]string {
	for _, c := range checks {
		if strings.HasPrefix(file, c.folder) {
			return c.tests
		}
	}
	return [][]string{{"./" + strings.Join(strings.Split(file, "/")[:2], "/") + "/..."}}
}
