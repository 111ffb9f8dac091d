// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package skyhook tests the architecture: which package may import which.
package skyhook

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/skyhook-k8s/skyhook/"

// An importRule lists what a package must never import, and why.
type importRule struct {
	pkg       string   // path below the module, a prefix
	forbidden []string // import paths, prefixes; "our:" stands for this module; "except:", before the others, allows one package of it
	why       string
}

var kubernetes = []string{"k8s.io/", "sigs.k8s.io/"}

var importRules = []importRule{
	{"internal/rollout", []string{"our:"}, "the engine knows nodes and budgets, and nothing of Skyhook, NodeOp or their objects"},
	{"internal/rollout", kubernetes, "the engine decides on plain data, so that a plan can be printed, simulated and replayed"},
	{"internal/rollout", []string{"os", "net", "log", "math/rand", "context", "io/fs", "syscall"}, "Decide is pure: no machine, no network, no random numbers; even the clock is in the Snapshot"},
	{"internal/rollout", []string{"github.com/", "golang.org/x/", "go.uber.org/"}, "the engine needs the standard library only"},
	{"internal/sim", kubernetes, "the simulated cluster knows plans, not API objects"},
	{"internal/sim", []string{"our:internal/cluster", "our:internal/controller", "our:internal/cli", "our:internal/skyhook", "our:internal/nodeop", "our:api"}, "the simulator runs the engine only"},
	{"internal/pack", kubernetes, "the package format is read on hosts, without Kubernetes"},
	{"internal/pack", []string{"our:"}, "operator and agent share these names; the package is below both"},
	{"internal/agent", kubernetes, "the agent on the host works without an API server"},
	{"internal/agent", []string{"our:api", "our:internal/rollout", "our:internal/skyhook", "our:internal/nodeop", "our:internal/cluster", "our:internal/controller", "our:internal/cli", "our:internal/sim"}, "of this module the agent knows the package format only"},
	{"api", []string{"our:internal", "our:cmd"}, "other programs import these types; they contain no logic"},
	{"api", []string{"sigs.k8s.io/controller-runtime", "k8s.io/client-go"}, "types only: importing them must not import a client"},
	{"internal/skyhook", []string{"our:internal/rollout/engine", "our:internal/nodeop", "our:internal/cluster", "our:internal/controller", "our:internal/cli", "our:internal/sim", "our:internal/agent"}, "a front end knows its kind and the engine's nouns"},
	{"internal/skyhook", []string{"sigs.k8s.io/controller-runtime", "k8s.io/client-go"}, "a front end compiles objects; it never talks to an API server"},
	{"internal/nodeop", []string{"our:internal/rollout/engine", "our:internal/skyhook", "our:internal/cluster", "our:internal/controller", "our:internal/cli", "our:internal/sim", "our:internal/agent"}, "a front end knows its kind and the engine's nouns"},
	{"internal/nodeop", []string{"sigs.k8s.io/controller-runtime", "k8s.io/client-go"}, "a front end compiles objects; it never talks to an API server"},
	{"internal/expression", []string{"our:internal", "our:api"}, "an expression is a text about plain values"},
	{"internal/policy", []string{"our:internal/rollout/engine", "our:internal/skyhook", "our:internal/nodeop", "our:internal/cluster", "our:internal/controller", "our:internal/cli", "our:internal/sim", "our:internal/agent"}, "both front ends read policies with this package; it knows neither"},
	{"internal/node", []string{"our:internal/rollout/engine", "our:internal/policy", "our:internal/skyhook", "our:internal/nodeop", "our:internal/cluster", "our:internal/controller", "our:internal/cli", "our:internal/sim", "our:internal/agent"}, "both front ends and the back end read and change nodes with this package; it knows none of them"},
	{"internal/node", []string{"sigs.k8s.io/controller-runtime", "k8s.io/client-go"}, "a record is read and an edit is made; nothing is fetched or written"},
	{"internal/node/hold", kubernetes, "the rule about holds serves the simulated cluster too"},
	{"internal/node/hold", []string{"our:api", "our:internal/pack"}, "the rule about holds works on plain values, so that the simulated cluster can use it"},
	{"internal/policy", []string{"sigs.k8s.io/controller-runtime", "k8s.io/client-go"}, "a policy is an argument; the package fetches nothing"},
	{"internal/cluster", []string{"our:internal/controller", "our:internal/cli", "our:internal/sim", "our:internal/agent"}, "the back end observes and applies for the operator and the CLI alike"},
	{"internal/cluster", []string{"sigs.k8s.io/controller-runtime/pkg/manager", "sigs.k8s.io/controller-runtime/pkg/builder"}, "the back end must work with a plain client, for kubectl skyhook plan"},
	{"internal/options", []string{"sigs.k8s.io/", "k8s.io/client-go", "our:internal/cluster", "our:internal/controller", "our:internal/cli", "our:internal/sim", "our:internal/agent"}, "settings are parsed alike by the operator and by the plugin; parsing needs no client and no cluster"},
	{"internal/controller", []string{"our:internal/sim", "our:internal/cli", "our:internal/agent"}, "the loop runs on the real cluster only"},
	{"internal/view", []string{"our:internal/cli", "our:internal/ui", "our:internal/controller", "our:internal/packagecli", "our:internal/migrate", "sigs.k8s.io/controller-runtime", "k8s.io/client-go", "github.com/spf13/"}, "a view is computed from what was observed; it reads no flags and no cluster"},
	{"internal/cli/look", []string{"our:internal/ui", "our:internal/cli/page"}, "text commands print the values of internal/view; they need no pages"},
	{"internal/cli/preview", []string{"our:internal/ui", "our:internal/cli/page"}, "text commands print the values of internal/view; they need no pages"},
	{"internal/cli/act", []string{"our:internal/ui", "our:internal/cli/page"}, "text commands print the values of internal/view; they need no pages"},
	{"internal/cli/packages", []string{"our:internal/ui", "our:internal/cli/page"}, "text commands print the values of internal/view; they need no pages"},
	{"internal/cli/support", []string{"our:internal/ui", "our:internal/cli/page"}, "text commands print the values of internal/view; they need no pages"},
	{"internal/cli/migrate", []string{"our:internal/ui", "our:internal/cli/page"}, "text commands print the values of internal/view; they need no pages"},
	{"internal/cli/session", []string{"our:internal/ui", "our:internal/cli/page"}, "text commands print the values of internal/view; they need no pages"},
	{"internal/cli", []string{"our:internal/controller"}, "the CLI decides with the engine; it runs no loop"},
	{"internal/migrate", []string{"our:internal/cli", "our:internal/cluster", "our:internal/controller", "our:internal/rollout", "our:internal/sim", "sigs.k8s.io/controller-runtime", "k8s.io/client-go"}, "a migration is computed from objects and nodes; internal/cli reads and writes them"},
	{"internal/packagecli", []string{"our:internal/cli", "our:internal/cluster", "our:internal/controller", "our:internal/rollout", "our:internal/skyhook", "our:internal/nodeop", "our:internal/policy", "our:internal/sim", "our:api"}, "authors of packages need no cluster; internal/cli adds these commands to the root command"},
	{"internal/packagecli", []string{"k8s.io/", "sigs.k8s.io/controller-runtime"}, "authors of packages need no cluster"},
	{"internal/output", []string{"our:internal", "our:api", "our:cmd"}, "commands of both kinds print through this package; it knows neither"},
	{"internal/output", []string{"k8s.io/api/", "k8s.io/client-go/kubernetes", "k8s.io/client-go/rest", "k8s.io/client-go/tools", "sigs.k8s.io/controller-runtime"}, "package commands print without a cluster; only the formats are those of kubectl's libraries"},
	{"internal/ui", []string{"except:internal/view", "our:"}, "pages draw the values of internal/view; they find out nothing and decide nothing"},
	{"internal/ui", []string{"k8s.io/", "sigs.k8s.io/"}, "pages draw the values of internal/view; they find out nothing and decide nothing"},
	{"internal/image", kubernetes, "images are built without a cluster"},
	{"internal/image", []string{"our:internal", "our:api"}, "the builder of images knows files and programs, not their purpose"},
	{"cmd", []string{"our:internal/rollout"}, "a main wires one package; decisions are made below it"},
}

func TestImports(t *testing.T) {
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		for _, rule := range importRules {
			if name != rule.pkg && !strings.HasPrefix(name, rule.pkg+"/") {
				continue
			}
			for _, imp := range p.Imports {
				if isForbidden(rule, imp) {
					t.Errorf("%s imports %s\n\t%s", name, imp, rule.why)
				}
			}
		}
	}
}

// TestImportRules checks that forbidden imports are found.
func TestImportRules(t *testing.T) {
	for _, c := range []struct {
		name, imp string
		want      bool
	}{
		{"internal/rollout", "os", true},
		{"internal/rollout", "net/http", true},
		{"internal/rollout", "k8s.io/api/core/v1", true},
		{"internal/rollout", module + "internal/skyhook", true},
		{"internal/rollout", "sort", false},
		{"internal/rollout", "logarithm", false},
		{"internal/agent", module + "internal/pack", false},
		{"internal/agent", "k8s.io/api/core/v1", true},
		{"internal/cli", module + "internal/controller", true},
		{"internal/cli/look", module + "internal/ui", true},
		{"internal/ui", module + "internal/view", false},
		{"internal/ui", module + "internal/views", true},
		{"internal/ui", module + "internal/rollout", true},
		{"api", module + "internal/pack", true},
		{"internal/image", module + "cmd/shell", false},
		{"internal/image", module + "internal/pack", true},
	} {
		got := false
		for _, rule := range importRules {
			if rule.pkg == c.name && isForbidden(rule, c.imp) {
				got = true
			}
		}
		if got != c.want {
			t.Errorf("%s imports %s: forbidden %v, want %v", c.name, c.imp, got, c.want)
		}
	}
}

func isForbidden(rule importRule, imp string) bool {
	if own := module + rule.pkg; imp == own || strings.HasPrefix(imp, own+"/") {
		return false
	}
	for _, n := range rule.forbidden {
		if rest, allowed := strings.CutPrefix(n, "except:"); allowed && imp == module+rest {
			return false
		}
		if rest, ours := strings.CutPrefix(n, "our:"); ours {
			n = strings.TrimSuffix(module+rest, "/")
		}
		if imp == n || strings.HasPrefix(imp, strings.TrimSuffix(n, "/")+"/") || strings.HasSuffix(n, "/") && strings.HasPrefix(imp, n) {
			return true
		}
	}
	return false
}

type pkg struct {
	ImportPath string
	Imports    []string
}

func listPackages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var ps []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	return ps
}
