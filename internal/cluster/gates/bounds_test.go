// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// TestAnswersAreBounded: an answer of more than 1 MiB is not read, and none is unpacked.
func TestAnswersAreBounded(t *testing.T) {
	large := `{"status":"success","data":{"resultType":"scalar","result":[0,"1"]}` + strings.Repeat(" ", 1<<20) + "}"
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := io.WriteString(w, large); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ encoding, answer, want string }{
		"as it is": {"", large, "because its answer has more than 1 MiB"},
		"packed":   {"gzip", packed.String(), "cannot be asked"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if accepted := r.Header.Get("Accept-Encoding"); accepted != "" {
				t.Errorf("%s: the operator accepts %s", name, accepted)
			}
			w.Header().Set("Content-Encoding", c.encoding)
			_, _ = io.WriteString(w, c.answer) // the operator reads no more than its limit
		}))
		most := v1alpha1.Decimal("1")
		p := &v1alpha1.DeploymentPolicy{Spec: v1alpha1.DeploymentPolicySpec{Health: &v1alpha1.HealthGates{Prometheus: []v1alpha1.PrometheusGate{{Name: "g", URL: server.URL, Query: "q", AtMost: &most}}}}}
		if why := queryAll(context.Background(), p, Endpoints{Allowed: []string{AnyEndpoint}}).closed; why == nil || !strings.Contains(why.Text, c.want) {
			t.Errorf("%s: the gate says %v, want %s", name, why, c.want)
		}
		server.Close()
	}
}

// manyObjects is an API server with ConfigMaps that are called by their numbers, each with a text of some bytes.
type manyObjects struct {
	n, size int
	gets    int
	lists   int
}

func (m *manyObjects) object(i int) unstructured.Unstructured {
	return unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": strconv.Itoa(i)}, "data": map[string]any{"text": strings.Repeat("x", m.size)}}}
}

func (m *manyObjects) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	m.gets++
	if o, ok := into.(*unstructured.Unstructured); ok {
		o.Object = map[string]any{"metadata": map[string]any{"name": key.Name}}
	}
	return nil
}

func (m *manyObjects) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	m.lists++
	o := (&client.ListOptions{}).ApplyOptions(options)
	list, ok := into.(*unstructured.UnstructuredList)
	if !ok || o.Limit == 0 {
		return fmt.Errorf("a list of %T without a limit", into)
	}
	from := 0
	if o.Continue != "" {
		from, _ = strconv.Atoi(o.Continue)
	}
	to := min(from+int(o.Limit), m.n)
	for i := from; i < to; i++ {
		list.Items = append(list.Items, m.object(i))
	}
	if to < m.n {
		list.SetContinue(strconv.Itoa(to))
	}
	return nil
}

func newObjectCheck(name, cel string) v1alpha1.ObjectCheck {
	check := v1alpha1.ObjectCheck{ObjectSelector: v1alpha1.ObjectSelector{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: name}, CEL: cel}
	if name == "" {
		check.Selector = "app=gate"
	}
	return check
}

// TestListsAreBounded: objects are listed by pages, all of them are checked, and too many or too large ones are not read to the end.
func TestListsAreBounded(t *testing.T) {
	const title = "ConfigMap with app=gate in default"
	for name, c := range map[string]struct {
		server     manyObjects
		cel        string
		want       string
		lists, max int
	}{
		"all pages":  {manyObjects{n: 120, size: 10}, `object.metadata.name != "110"`, `ConfigMap 110 does not meet object.metadata.name != "110"`, 3, 3},
		"500":        {manyObjects{n: 500, size: 10}, "true", "", 10, 10},
		"501":        {manyObjects{n: 501, size: 10}, "true", "there are more than 500 of " + title + ": narrow the selector", 10, 10},
		"none":       {manyObjects{}, "true", "there is no " + title, 1, 1},
		"large ones": {manyObjects{n: 400, size: 100_000}, "true", "the objects " + title + " have more than 8 MiB together: narrow the selector", 1, 2},
	} {
		r := newObjectReader(&c.server)
		got := r.check(context.Background(), newObjectCheck("", c.cel), "")
		if got.text != c.want || c.server.lists < c.lists || c.server.lists > c.max {
			t.Errorf("%s: %q after %d lists; want %q after %d to %d", name, got.text, c.server.lists, c.want, c.lists, c.max)
		}
	}
}

// TestReaderHoldsLittle: what a pass has read is forgotten before it becomes too large.
func TestReaderHoldsLittle(t *testing.T) {
	server := &manyObjects{n: 50, size: 50_000}
	r := newObjectReader(server)
	for i := range 20 {
		check := newObjectCheck("", "true")
		check.Namespace = fmt.Sprint(i)
		if got := r.check(context.Background(), check, ""); got.text != "" {
			t.Fatal(got.text)
		}
		held := 0
		for _, found := range r.known {
			held += found.size
		}
		if held > maxHeld || held != r.held {
			t.Errorf("after %d lists the reader holds %d bytes, and counts %d", i+1, held, r.held)
		}
	}
}

// TestGatesOfPassAreBounded: a pass reads for a bounded number of gates of all policies together. The others come next, the oldest first.
func TestGatesOfPassAreBounded(t *testing.T) {
	server := &manyObjects{}
	in := Input{Objects: server, Now: time.Unix(1000, 0)}
	awaited := map[string]bool{}
	for i := range 300 {
		p := &v1alpha1.DeploymentPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i)), Generation: 1}}
		p.Spec.Health = &v1alpha1.HealthGates{Objects: []v1alpha1.ObjectGate{{ObjectCheck: newObjectCheck(p.Name, "true")}}}
		in.Policies = append(in.Policies, p)
		awaited[p.Name] = true
	}
	c := &Checker{}
	c.SetAwaited(awaited, in.Policies)
	for pass := 1; ; pass++ {
		before, closed := server.gets, 0
		results, retryAt := c.Check(context.Background(), in)
		if server.gets-before > maxReads || server.gets == before {
			t.Fatalf("pass %d reads %d objects", pass, server.gets-before)
		}
		for _, r := range results {
			if r.Closed != nil {
				closed++
			}
		}
		if want := len(in.Policies) - server.gets; closed != want || closed > 0 && retryAt.After(in.Now) {
			t.Fatalf("after pass %d the gates of %d policies are closed until %v; want %d", pass, closed, retryAt, want)
		}
		if closed == 0 {
			break
		}
		if !c.SetAwaited(awaited, in.Policies) {
			t.Errorf("pass %d asks for no other", pass)
		}
	}
}
