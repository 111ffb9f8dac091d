// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

var (
	pool = map[string]any{"metadata": map[string]any{"name": "n1"}, "status": map[string]any{"health": "OK", "ready": int64(3), "list": listOf(2000)}}
	n1   = map[string]any{"metadata": map[string]any{"name": "n1"}, "status": map[string]any{"allocatable": map[string]any{"memory": "8Gi"}}}
)

func listOf(n int) (out []any) {
	for i := range n {
		out = append(out, int64(i))
	}
	return out
}

// TestExpressions compiles and evaluates expressions with and without a node.
func TestExpressions(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"object.status.health == 'OK'", "true"},
		{"object.status.ready > 3", "false"},
		{"object.metadata.name == node.metadata.name", "true"},
		{"quantity(node.status.allocatable.memory).isGreaterThan(quantity('4Gi'))", "true"},
		{"has(object.status.phase) && object.status.phase == 'Ready'", "false"},
		{"object.status.phase == 'Ready'", "no such key: phase"},
		{"object.status.health", "it gives string, and must give true or false"},
		{"object.metadata.name + 'x'", "it gives string, and must give true or false"},
		{"1 + 1", "it gives int, and must give true or false"},
		{"object.status.health = 'OK'", "column 22: Syntax error: token recognition error at: '= '"},
		{"self.status.ready > 1", "column 1: undeclared reference to 'self' (in container '')"},
		{"object.status.list.all(a, object.status.list.all(b, a + b < 10000))", "it costs more than an expression may: compare less"},
	} {
		if got := evaluate(c.text, true, n1); got != c.want {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
	if got := evaluate("object.metadata.name == node.metadata.name", false, nil); got != "column 25: undeclared reference to 'node' (in container '')" {
		t.Errorf("an expression about a node where there is none: %s", got)
	}
}

func evaluate(text string, hasNode bool, of map[string]any) string {
	e, err := Compile(text, hasNode)
	if err != nil {
		return err.Error()
	}
	isTrue, err := e.IsTrue(context.Background(), pool, of)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(isTrue)
}

// TestUsesNode: only expressions that may read the node need it.
func TestUsesNode(t *testing.T) {
	for text, want := range map[string]bool{"object.spec.nodeName == node.metadata.name": true, "object.status.health == 'OK'": false} {
		e, err := Compile(text, true)
		if err != nil || e.UsesNode() != want {
			t.Errorf("%s: %v, %v; want %v", text, e.UsesNode(), err, want)
		}
	}
}

// TestCacheIsBounded: expressions that are edited again and again do not fill the memory.
func TestCacheIsBounded(t *testing.T) {
	for i := range 2*maxCached + 1 {
		if _, err := Compile(fmt.Sprintf("object.n == %d", i), false); err != nil {
			t.Fatal(err)
		}
	}
	cache.Lock()
	defer cache.Unlock()
	if n := len(cache.entries); n > maxCached {
		t.Errorf("%d expressions are remembered", n)
	}
}

func TestErrorsAreShort(t *testing.T) {
	_, err := Compile("object.a == ", false)
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("the error is %v", err)
	}
}
