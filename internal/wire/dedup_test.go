// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/internal/cluster"
)

var histories = flag.Int("histories", 300, "random histories of nodes that are watched")

// change is one event of a history.
type change struct {
	what    string
	version int
	node    *corev1.Node
}

// history is what happens to a few nodes: mostly nothing but that their kubelets are alive.
func history(luck *rand.Rand, length int) []change {
	var out []change
	nodes := map[string]*corev1.Node{}
	for version := 10; len(out) < length; version += 1 + luck.Intn(3) {
		name := fmt.Sprintf("n%d", luck.Intn(4))
		n, there := nodes[name]
		what := "MODIFIED"
		switch dice := luck.Intn(20); {
		case !there:
			what = "ADDED"
			n = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprintf("%s-%d", name, version))}}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		case dice == 0:
			what = "DELETED"
		case dice < 5:
			n = n.DeepCopy()
			n.Labels = map[string]string{"team": fmt.Sprint(luck.Intn(2))}
		case dice == 5:
			n = n.DeepCopy()
			n.Spec.Unschedulable = !n.Spec.Unschedulable
		case dice == 6:
			n = n.DeepCopy()
			n.Status.NodeInfo.BootID = fmt.Sprint(luck.Intn(2))
		default:
			n = n.DeepCopy()
			n.Status.Conditions[0].LastHeartbeatTime = metav1.Unix(int64(version), 0)
			n.Status.Images = []corev1.ContainerImage{{SizeBytes: int64(version)}}
		}
		n.ResourceVersion = strconv.Itoa(version)
		if nodes[name] = n; what == "DELETED" {
			delete(nodes, name)
		}
		out = append(out, change{what, version, n.DeepCopy()})
		if luck.Intn(10) == 0 {
			version++
			out = append(out, change{bookmark, version, &corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(version)}}})
		}
	}
	return out
}

// follower is an informer: it lists, watches from there, and goes on where it was when a watch breaks off.
type follower struct {
	at    string
	nodes map[string]*corev1.Node
	read  int
}

func (f *follower) list(all []change, upTo int) {
	f.nodes, f.at = map[string]*corev1.Node{}, "9"
	for _, c := range all[:upTo] {
		f.at = strconv.Itoa(c.version)
		switch c.what {
		case "DELETED":
			delete(f.nodes, c.node.Name)
		case bookmark:
		default:
			f.nodes[c.node.Name] = c.node
		}
	}
}

// follow watches events until the watch ends, or breaks after some of them.
func (f *follower) follow(t *testing.T, a *deduplicator, events []change, breaks int) {
	t.Helper()
	var sent []byte
	for _, c := range events {
		sent = append(sent, framed(encoded(t, c.what, c.node.DeepCopy()))...)
	}
	if !a.begin(url.Values{"watch": {"true"}, "resourceVersion": {f.at}}) {
		t.Fatal("a watch is still on its way")
	}
	s := newStream(io.NopCloser(bytes.NewReader(sent)), kinds[0], a)
	defer func() { _ = s.Close() }()
	for range breaks {
		size := make([]byte, lengthPrefix)
		if _, err := io.ReadFull(s, size); err != nil {
			return
		}
		frame := make([]byte, int(size[2])<<8|int(size[3]))
		if _, err := io.ReadFull(s, frame); err != nil {
			t.Fatal(err)
		}
		what, o, err := decoded(frame)
		if err != nil {
			t.Fatal(err)
		}
		f.read++
		n := o.(*corev1.Node)
		f.at = n.ResourceVersion
		switch what {
		case "DELETED":
			delete(f.nodes, n.Name)
		case bookmark:
		default:
			f.nodes[n.Name] = n
		}
	}
}

// TestAgain plays random histories, with watches that break off anywhere, that are resumed and that are replaced by
// a list: whenever a watch has told all, who follows it sees every node as it is, and a write that names the version it
// sees names the version there is.
func TestAgain(t *testing.T) {
	const length = 120
	read := 0
	for seed := range int64(*histories) {
		luck := rand.New(rand.NewSource(seed))
		all := history(luck, length)
		a, f := newDeduplicator(), &follower{}
		end := luck.Intn(len(all))
		f.list(all, end)
		for round := 0; end < len(all); round++ {
			begin := 0
			for begin < len(all) && strconv.Itoa(all[begin].version) != f.at {
				begin++
			}
			if f.at == "9" {
				begin = -1
			}
			end = min(len(all), max(begin+1, end)+luck.Intn(30))
			breaks := len(all)
			if luck.Intn(3) == 0 {
				breaks = luck.Intn(8)
			}
			f.follow(t, a, all[begin+1:end], breaks)
			if breaks < len(all) {
				if luck.Intn(4) == 0 {
					end = min(len(all), end+luck.Intn(10))
					f.list(all, end)
				}
				continue
			}
			is := &follower{}
			is.list(all, end)
			check(t, fmt.Sprintf("seed %d, round %d", seed, round), a, f, is)
		}
		read += f.read
	}
	if most := *histories * length; read > most*6/10 {
		t.Errorf("%d of at most %d events were read: too many say nothing", read, most)
	}
}

func check(t *testing.T, when string, a *deduplicator, seen, is *follower) {
	t.Helper()
	stripped := func(nodes map[string]*corev1.Node) map[string]*corev1.Node {
		out := maps.Clone(nodes)
		for name, n := range out {
			n = cluster.StripNode(n.DeepCopy())
			n.ResourceVersion, n.TypeMeta = "", metav1.TypeMeta{}
			out[name] = n
		}
		return out
	}
	if diff := cmp.Diff(stripped(is.nodes), stripped(seen.nodes)); diff != "" {
		t.Fatalf("%s: what is (-) and what is seen (+):\n%s", when, diff)
	}
	for name, n := range seen.nodes {
		if got, want := a.newestVersion(string(n.UID), n.ResourceVersion), is.nodes[name].ResourceVersion; got != want {
			t.Fatalf("%s: the newest version of %s like %s is %s, want %s", when, name, n.ResourceVersion, got, want)
		}
	}
}

// heard says whether an event is passed on.
func heard(t *testing.T, a *deduplicator, what string, n *corev1.Node) bool {
	t.Helper()
	var scratch []byte
	e, ok := kinds[0].cut(encoded(t, what, n), &scratch)
	if !ok {
		t.Fatal("not understood")
	}
	return a.observe(string(e.kind), e.object)
}

// TestNewest holds that a version stands for another only when nothing was said between them.
func TestNewest(t *testing.T) {
	a := newDeduplicator()
	node := func(version, team string, alive int64) {
		t.Helper()
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: version, Labels: map[string]string{"team": team}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.NewTime(time.Unix(alive, 0))}}
		heard(t, a, "MODIFIED", n)
	}
	node("9", "a", 1)
	node("10", "b", 2)
	node("100", "b", 3)
	node("1000", "b", 4)
	for version, want := range map[string]string{"9": "9", "10": "1000", "100": "1000", "1000": "1000", "1001": "1001", "": "", "new": "new"} {
		if got := a.newestVersion("u", version); got != want {
			t.Errorf("the newest version like %q is %q, want %q", version, got, want)
		}
	}
	if got := a.newestVersion("other", "10"); got != "10" {
		t.Errorf("the newest version of a node nobody knows is %q", got)
	}
	node("100", "b", 3) // a watch that is taken up again repeats what was left out
	if got := a.newestVersion("u", "10"); got != "1000" {
		t.Errorf("after a repetition version 10 stands for %q", got)
	}
	node("1001", "a", 5)
	if got := a.newestVersion("u", "10"); got != "10" {
		t.Errorf("a version of before stands for %q", got)
	}
	a.reset()
	if got := a.newestVersion("u", "1001"); got != "1001" || len(a.objects) > 0 {
		t.Errorf("after something that is no event there is %q", got)
	}
}

// TestAgainForgets holds that an object that is added is always new, and that one that is gone is forgotten.
func TestAgainForgets(t *testing.T) {
	a := newDeduplicator()
	for _, what := range []string{"ADDED", "ADDED", "DELETED"} {
		if !heard(t, a, what, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "1"}}) {
			t.Errorf("%s was left out", what)
		}
	}
	if len(a.objects) > 0 {
		t.Errorf("%d objects are known", len(a.objects))
	}
}

// TestAgainDoubts holds that what is not understood is passed on, and that nothing is left out after it.
func TestAgainDoubts(t *testing.T) {
	node := func(version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: version}}
	}
	for name, doubtful := range map[string]func(a *deduplicator){
		"an error": func(a *deduplicator) { heard(t, a, "ERROR", node("3")) },
		"no uid": func(a *deduplicator) {
			heard(t, a, "MODIFIED", &corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "3"}})
		},
		"no version":         func(a *deduplicator) { heard(t, a, "MODIFIED", node("")) },
		"another version":    func(a *deduplicator) { heard(t, a, "MODIFIED", node("v3")) },
		"no object":          func(a *deduplicator) { a.observe("MODIFIED", nil) },
		"a broken object":    func(a *deduplicator) { a.observe("MODIFIED", []byte{0x0a, 2, 0xff, 0xff}) },
		"the object anew":    func(a *deduplicator) { a.begin(url.Values{}) },
		"all objects anew":   func(a *deduplicator) { a.begin(url.Values{"resourceVersion": {"2"}, "sendInitialEvents": {"true"}}) },
		"a watch from later": func(a *deduplicator) { a.begin(url.Values{"resourceVersion": {"3"}}) },
	} {
		a := newDeduplicator()
		if !heard(t, a, "MODIFIED", node("2")) || heard(t, a, "MODIFIED", node("2")) {
			t.Fatal("an event is new the first time, and only then")
		}
		doubtful(a)
		if !heard(t, a, "MODIFIED", node("4")) {
			t.Errorf("after %s an event was left out", name)
		}
	}
}
