// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package expression compiles and evaluates the CEL expressions of proofs and health gates, with the API server's own functions and
// cost limit.
package expression

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	limits "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Names of the variables.
const (
	object = "object"
	node   = "node"
)

// functionsOf is the version of Kubernetes whose functions expressions may use.
var functionsOf = version.MajorMinor(1, 36)

// maxCached bounds how many compiled expressions are remembered. Forgetting them costs compiling them again.
const maxCached = 200

// Expression is a compiled expression. It may be used by several goroutines.
type Expression struct {
	program  cel.Program
	usesNode bool
}

type cacheKey struct {
	text      string
	variables variables
}

// variables are those that an expression may use.
type variables struct{ object, node bool }

type compiled struct {
	expression *Expression
	err        error
}

var cache = struct {
	sync.Mutex
	entries map[cacheKey]compiled
}{entries: map[cacheKey]compiled{}}

// Compile compiles an expression about the variable object and, with hasNode, the variable node. Each text is compiled once.
func Compile(text string, hasNode bool) (*Expression, error) {
	return compileOnce(text, variables{object: true, node: hasNode})
}

// CompileForNode compiles an expression about the variable node alone.
func CompileForNode(text string) (*Expression, error) {
	return compileOnce(text, variables{node: true})
}

func compileOnce(text string, has variables) (*Expression, error) {
	cache.Lock()
	defer cache.Unlock()
	key := cacheKey{text, has}
	if known, ok := cache.entries[key]; ok {
		return known.expression, known.err
	}
	if len(cache.entries) >= maxCached {
		clear(cache.entries)
	}
	e, err := compile(text, has)
	cache.entries[key] = compiled{e, err}
	return e, err
}

// environments have the variables of expressions. They are made on first use, because that is slow.
var environments = map[variables]func() (*cel.Env, error){
	{object: true}: newEnvironment(object), {object: true, node: true}: newEnvironment(object, node), {node: true}: newEnvironment(node),
}

func newEnvironment(names ...string) func() (*cel.Env, error) {
	return sync.OnceValues(func() (*cel.Env, error) {
		declared := make([]cel.EnvOption, len(names))
		for i, name := range names {
			declared[i] = cel.Variable(name, cel.DynType)
		}
		set, err := environment.MustBaseEnvSet(functionsOf).Extend(environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: declared})
		if err != nil {
			return nil, fmt.Errorf("declaring variables: %w", err)
		}
		return set.NewExpressionsEnv(), nil
	})
}

func compile(text string, has variables) (*Expression, error) {
	env, err := environments[has]()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, describeIssues(issues)
	}
	if given := ast.OutputType(); !given.IsExactType(cel.BoolType) && !given.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("it gives %s, and must give true or false", given)
	}
	program, err := env.Program(ast, cel.CostLimit(limits.PerCallLimit), cel.InterruptCheckFrequency(limits.CheckFrequency))
	if err != nil {
		return nil, err
	}
	return &Expression{program: program, usesNode: has.node && strings.Contains(text, node)}, nil
}

// describeIssues returns the first issue without the lines that point at its place.
func describeIssues(issues *cel.Issues) error {
	first := issues.Errors()[0]
	message, _, _ := strings.Cut(first.Message, "\n")
	return fmt.Errorf("column %d: %s", first.Location.Column()+1, message)
}

// UsesNode reports whether the expression may read the variable node.
func (e *Expression) UsesNode() bool { return e.usesNode }

// IsTrue evaluates the expression. Both variables are objects as JSON decodes them; of is nil where the expression has no node.
func (e *Expression) IsTrue(ctx context.Context, about, of map[string]any) (bool, error) {
	values := map[string]any{object: about}
	if of != nil {
		values[node] = of
	}
	value, _, err := e.program.ContextEval(ctx, values)
	switch {
	case err != nil && strings.Contains(err.Error(), "cost limit exceeded"):
		return false, errors.New("it costs more than an expression may: compare less")
	case err != nil:
		return false, err
	}
	isTrue, isBool := value.Value().(bool)
	if !isBool {
		return false, fmt.Errorf("it gives %s, and must give true or false", value.Type().TypeName())
	}
	return isTrue, nil
}
