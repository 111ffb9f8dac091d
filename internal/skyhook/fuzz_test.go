// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

const exampleState = `{"dexter|1.2.3":{"name":"dexter","version":"1.2.3","image":"ghcr.io/x/y","containerSHA":"sha256:a","stage":"config","state":"complete","restarts":2},"spencer|3.2.3":{"name":"spencer","version":"3.2.3","image":"ghcr.io/x/z","stage":"apply","state":"in_progress"}}`

// FuzzNode compiles arbitrary annotations of a node: it never panics, and every task can be applied.
func FuzzNode(f *testing.F) {
	f.Add(exampleState, `{"node":"node-n1","skyhook":"uid-demo"}`, "true")
	f.Add(`{"aa|1.0.0":{"name":"aa","version":"1.0.0","image":"i","stage":"interrupt","state":"skipped"}}`, `{"node":"node-n1","skyhook":"uid-demo","packages":{"aa|1.0.0":{"at":"interrupt/skipped","goal":"install","by":"bb|1.0.0/interrupt"}}}`, "")
	f.Add(`{"aa|1.0.0":{"name":"aa","version":"1.0.0","image":"i","stage":"interrupt","state":"in_progress"}}`, `{"node":"node-n1","skyhook":"uid-demo","admitted":true,"packages":{"aa|1.0.0":{"at":"interrupt/in_progress","goal":"config","from":"x","interrupt":"y"}}}`, "")
	f.Add(`{"zz|1.0.0":{"name":"zz","version":"1.0.0","image":"i","stage":"uninstall-interrupt","state":"in_progress"}}`, `{"node":"node-n1","skyhook":"uid-demo","packages":{"zz|1.0.0":{"at":"uninstall-interrupt/in_progress","goal":"uninstall"}}}`, "")
	f.Add(`{"cc|not a version":{"name":"cc","version":"x","image":"i","stage":"config","state":"complete"}}`, ``, "")
	f.Fuzz(func(t *testing.T, state, record, cordon string) {
		w := newTestCluster(t)
		s := w.apply(`{metadata: {name: demo}, spec: {packages: {
			aa: {version: 1.0.0, image: example.org/p, interrupt: {type: reboot}, configMap: {a: "1"}, configInterrupts: {a: {type: service, services: [x]}}},
			bb: {version: 1.0.0, image: example.org/p, interrupt: {type: service, services: [y]}, dependsOn: {aa: 1.0.0}},
			cc: {version: 1.0.0, image: example.org/p, uninstall: {enabled: true, apply: true}}}}}`)
		n := w.addNode("n1")
		n.Annotations["skyhook.nvidia.com/nodeState_demo"], n.Annotations["skyhook.nvidia.com/cordon_demo"] = state, cordon
		if record != "" {
			n.Annotations["skyhook.nvidia.com/record_demo"] = record
		}
		c := w.compile(s)
		for _, target := range c.Rollout.Targets {
			if target.Blocked != nil {
				continue
			}
			for _, task := range target.Tasks {
				view := node.Parse(w.node("n1"), nil)
				e, err := c.Change(rollout.Action{Verb: rollout.VerbRun, Node: "n1", Task: task.ID}, view, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.Object(task.ID, nil, view.With(e)); err != nil {
					t.Fatal(err)
				}
				if _, err := c.Change(rollout.Action{Verb: rollout.VerbRecord, Node: "n1", Task: task.ID, State: rollout.StateDone}, view.With(e), nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		c.Status(verdicts(c, nil), nil)
	})
}

// FuzzAgentArguments checks that the agent parses the arguments of a pod, whatever the package and its interrupt.
func FuzzAgentArguments(f *testing.F) {
	f.Add("tuning", "1.2.3", "cron", "containerd.service", int64(3))
	f.Add("a-b", "v2024.05.10-rc.1+x", "a@b", "", int64(1<<40))
	f.Fuzz(func(t *testing.T, name, version, one, two string, generation int64) {
		services := []string{one}
		if two != "" {
			services = append(services, two)
		}
		for _, s := range services {
			if pack.InvalidServiceReason(s) != "" {
				return
			}
		}
		if _, err := pack.ParseVersion(version); err != nil || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz-0123456789") != "" || name == "" || generation < 0 {
			return // the API server accepts none of these
		}
		payload := plan.Normalised(&v1alpha1.Interrupt{Type: v1alpha1.InterruptService, Services: services})
		got, err := pack.DecodeInterrupt(plan.EncodeInterrupt(payload))
		if err != nil || !reflect.DeepEqual(got.Services, payload.Services) || string(got.Type) != string(payload.Type) {
			t.Errorf("%+v reaches the agent as %+v, %v", payload, got, err)
		}
		id, err := pack.ParseResourceID(plan.ResourceID("demo", "uid", name, version, generation))
		if err != nil || id.Package != name || id.Version != version {
			t.Errorf("%s %s reaches the agent as %+v, %v", name, version, id, err)
		}
	})
}

// FuzzTag reads the annotation of a pod that anybody may have created.
func FuzzTag(f *testing.F) {
	f.Add(`{"name":"kernel","version":"1.4.0","skyhook":"gpu-base","stage":"apply","image":"example.org/pkgs/kernel","invalid":true}`)
	f.Fuzz(func(t *testing.T, text string) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationPackage: text}}}
		read, ok := podstate.ReadPodAnnotation(p)
		if !ok {
			return
		}
		var again podstate.Annotation
		if err := json.Unmarshal([]byte(podstate.WritePodAnnotation(read)), &again); err != nil || again != read {
			t.Errorf("%s comes back as %+v, %v", text, again, err)
		}
		podstate.Read(p)
	})
}
