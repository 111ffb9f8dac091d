// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/gates"
)

// A neighbour is a program that a recipe of the documentation asks, as a small fake: it writes the conditions, labels and finalizers that
// the real one writes. The CRDs are those of the projects, in testdata/neighbours. Slurm, Kueue and Volcano are asked by their pods.
type neighbour struct {
	page   string // with the recipe
	step   string
	object schema.GroupVersionKind // that is created; zero for none
	labels string                  // of the neighbour's pods on the node, p1 and p2; empty for none
	works  func(*scenario)         // it has noticed, and has not agreed
	agrees func(*scenario)
	lies   []lie
}

// A lie is what a neighbour says that is no yes.
type lie struct {
	name string
	tell func(*scenario)
}

var neighbours = []neighbour{
	{
		page: "docs/tasks/good-neighbour.md", step: "slurm", labels: "app.kubernetes.io/name: slurmd",
		works: func(s *scenario) {
			s.setPodConditions("p1", "SlurmNodeStateDrain", "SlurmNodeStateAllocated") // jobs run
			s.setPodConditions("p2", "SlurmNodeStateDrain", "SlurmNodeStateIdle")
		},
		agrees: func(s *scenario) {
			s.setPodConditions("p1", "SlurmNodeStateDrain", "SlurmNodeStateIdle")
			s.setPodConditions("p2", "SlurmNodeStateDrain", "SlurmNodeStateIdle")
		},
		lies: []lie{
			{"idle, but jobs may still come", func(s *scenario) {
				s.setPodConditions("p1", "SlurmNodeStateIdle")
				s.setPodConditions("p2", "SlurmNodeStateIdle")
			}},
			{"the last job is not cleaned up", func(s *scenario) { s.setPodConditions("p1", "SlurmNodeStateDrain", "SlurmNodeStateCompleting") }},
			{"the drain is taken back", func(s *scenario) {
				s.setPodConditions("p1", "SlurmNodeStateDrain", "SlurmNodeStateIdle")
				s.setPodConditions("p1", "SlurmNodeStateDrain", "SlurmNodeStateUndrain", "SlurmNodeStateIdle")
			}},
		},
	},
	{
		page: "docs/tasks/good-neighbour.md", step: "maintenance", object: nodeMaintenance,
		works: func(s *scenario) {
			s.patchAsked(nodeMaintenance, `{"metadata":{"finalizers":["maintenance.nvidia.com/finalizer"]}}`)
			s.setCondition(nodeMaintenance, "Ready", "False", "WaitForPodCompletion")
		},
		agrees: func(s *scenario) { s.setCondition(nodeMaintenance, "Ready", "True", "Ready") },
		lies: []lie{
			{"the yes is taken back", func(s *scenario) {
				s.setCondition(nodeMaintenance, "Ready", "True", "Ready")
				s.setCondition(nodeMaintenance, "Ready", "False", "Pending")
			}},
			{"its object is deleted after a yes", func(s *scenario) {
				s.setCondition(nodeMaintenance, "Ready", "True", "Ready")
				s.deleteAsked(nodeMaintenance)
			}},
			{"an object of that name answers somebody else", func(s *scenario) {
				s.setCondition(nodeMaintenance, "Ready", "True", "Ready")
				s.patchAsked(nodeMaintenance, `{"metadata":{"labels":null}}`)
				s.now = s.now.Add(gates.AnswerLifetime)
				s.passes(2)
				s.requireVerdict("driver", "n1", "Handover: asks maintenance: NodeMaintenance default/skyhook-n1 exists and is not ours")
				s.deleteAsked(nodeMaintenance)
			}},
		},
	},
	{
		page: "examples/handover/nvsentinel.yaml", step: "nvsentinel", object: maintenanceRequest,
		works: func(s *scenario) {
			s.patchAsked(maintenanceRequest, `{"metadata":{"finalizers":["nvsentinel.dgxc.nvidia.com/maintenance-request-cleanup"]}}`)
			s.setCondition(maintenanceRequest, "HealthEventEmitted", "True", "Emitted")
			s.quarantine("draining", string(s.readAsked(maintenanceRequest).GetUID()))
		},
		agrees: func(s *scenario) {
			s.quarantine("drain-succeeded", string(s.readAsked(maintenanceRequest).GetUID()))
		},
		lies: []lie{
			{"the label is of an earlier request", func(s *scenario) { s.quarantine("drain-succeeded", "0b0f6c0e-9a4b-4e9c-8f0d-0a1b2c3d4e5f") }},
			{"the drain failed", func(s *scenario) { s.quarantine("drain-failed", string(s.readAsked(maintenanceRequest).GetUID())) }},
			{"its object is deleted after a yes", func(s *scenario) {
				s.quarantine("drain-succeeded", string(s.readAsked(maintenanceRequest).GetUID()))
				s.deleteAsked(maintenanceRequest)
			}},
		},
	},
	waitsForPods("kueue", "kueue.x-k8s.io/podset: main"),
	waitsForPods("volcano", "volcano.sh/job-name: train"),
}

var (
	nodeMaintenance    = schema.GroupVersionKind{Group: "maintenance.nvidia.com", Version: "v1alpha1", Kind: "NodeMaintenance"}
	maintenanceRequest = schema.GroupVersionKind{Group: "nvsentinel.dgxc.nvidia.com", Version: "v1", Kind: "MaintenanceRequest"}
)

// waitsForPods is a neighbour whose pods are waited for: nobody else has a say.
func waitsForPods(name, labels string) neighbour {
	return neighbour{
		page: "examples/handover/" + name + ".yaml", step: name, labels: labels,
		works: func(s *scenario) { s.endPod("p2") },
		agrees: func(s *scenario) {
			for _, name := range []string{"p1", "p2", "p3"} {
				if s.podExists(name) {
					s.endPod(name)
				}
			}
		},
		lies: []lie{{"a pod ends, and another one comes", func(s *scenario) {
			s.Apply(labelled("p3", labels))
			s.endPod("p1")
		}}},
	}
}

// TestNeighbours plays the recipes of the documentation: a Skyhook reboots a node on which a neighbour and somebody else have pods.
// Nobody is evicted before the neighbour agrees, and what was created to ask is deleted when the node is given back.
func TestNeighbours(t *testing.T) {
	for _, n := range neighbours {
		t.Run(n.step+" is slow", func(t *testing.T) {
			s := n.ask(t)
			n.works(s)
			s.now = s.now.Add(time.Hour)
			s.passes(3)
			n.requireNobodyLeaves(s)
			n.agrees(s)
			n.requireCompletes(s)
		})
		t.Run(n.step+" dies", func(t *testing.T) {
			s := n.ask(t)
			step := n.read(t).step
			s.now = s.now.Add(step.Timeout.Duration)
			switch step.OnTimeout {
			case v1alpha1.HandoverProceed:
				n.requireCompletes(s)
			case v1alpha1.HandoverGiveBack:
				s.passes(6)
				if s.GetNode("n1").Spec.Unschedulable || s.pod("web").DeletionTimestamp != nil {
					t.Errorf("the node was not given back; the verdict is %s", s.verdict("driver", "n1"))
				}
				n.requireAtRest(s)
			default:
				s.passes(3)
				s.requireVerdict("driver", "n1", "HandoverTimeout: asks "+n.step)
				n.requireNobodyLeaves(s)
			}
		})
		for _, lie := range n.lies {
			t.Run(n.step+" lies: "+lie.name, func(t *testing.T) {
				s := n.ask(t)
				n.works(s)
				lie.tell(s)
				for range 3 {
					s.now = s.now.Add(gates.AnswerLifetime)
					s.passes(2)
					n.requireNobodyLeaves(s)
				}
				n.works(s)
				n.agrees(s)
				n.requireCompletes(s)
			})
		}
	}
}

// TestNeighboursRights: the recipes grant what they need, and no more.
func TestNeighboursRights(t *testing.T) {
	s := newScenario(t, 0)
	for _, n := range neighbours {
		if n.object.Kind == "" {
			continue
		}
		mapping, err := s.Client.RESTMapper().RESTMapping(n.object.GroupKind(), n.object.Version)
		s.Must(err)
		want := []rbacv1.PolicyRule{{APIGroups: []string{n.object.Group}, Resources: []string{mapping.Resource.Resource}, Verbs: []string{"create", "get", "delete"}}}
		role := n.read(t).role
		if fmt.Sprint(role.Rules) != fmt.Sprint(want) || role.Labels["skyhook.nvidia.com/aggregate-to-operator"] != "true" {
			t.Errorf("%s grants %v with the labels %v, want %v", n.page, role.Rules, role.Labels, want)
		}
	}
}

// A recipe is what a page says about one neighbour.
type recipe struct {
	policy v1alpha1.DeploymentPolicy // with this step alone
	step   v1alpha1.HandoverStep
	role   rbacv1.ClusterRole
}

var manifest = regexp.MustCompile("(?s)\n( *)```yaml\n(.*?)\n *```\n")

// read reads the recipe of a neighbour.
func (n neighbour) read(t *testing.T) (r recipe) {
	t.Helper()
	text, err := os.ReadFile("../../" + n.page)
	if err != nil {
		t.Fatal(err)
	}
	if block := manifest.FindSubmatch(text); block != nil {
		text = bytes.ReplaceAll(append([]byte("\n"), block[2]...), append([]byte("\n"), block[1]...), []byte("\n"))
	}
	for _, part := range bytes.Split(text, []byte("\n---\n")) {
		var head metav1.TypeMeta
		if err := yaml.Unmarshal(part, &head); err != nil {
			t.Fatal(err)
		}
		switch head.Kind {
		case "DeploymentPolicy":
			err = yaml.UnmarshalStrict(part, &r.policy)
		case "ClusterRole":
			err = yaml.UnmarshalStrict(part, &r.role)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r.policy.Spec.Handover = slices.DeleteFunc(r.policy.Spec.Handover, func(step v1alpha1.HandoverStep) bool { return step.Name != n.step })
	if len(r.policy.Spec.Handover) != 1 {
		t.Fatalf("%s has no step %s", n.page, n.step)
	}
	r.step = r.policy.Spec.Handover[0]
	return r
}

// ask plays a Skyhook until the neighbour is asked.
func (n neighbour) ask(t *testing.T) *scenario {
	t.Helper()
	s := newScenario(t, 1)
	if n.object.Kind != "" {
		t.Cleanup(func() { s.deleteAsked(n.object) })
	}
	r := n.read(t)
	s.Must(s.Client.Create(context.Background(), &r.policy))
	s.Apply(workload("web", "n1"))
	if n.labels != "" {
		s.Apply(labelled("p1", n.labels))
		s.Apply(labelled("p2", n.labels))
	}
	s.SettlePods()
	s.Apply(strings.Replace(withPolicy(driver), "deploymentPolicy: careful", "deploymentPolicy: "+r.policy.Name, 1))
	s.passes(8)
	s.requireVerdict("driver", "n1", "Handover: asks "+n.step+": ")
	n.requireNobodyLeaves(s)
	if n.object.Kind != "" && s.readAsked(n.object) == nil {
		t.Fatalf("nobody is asked; the verdict is %s", s.verdict("driver", "n1"))
	}
	return s
}

func labelled(name, label string) string {
	return strings.Replace(workload(name, "n1"), "labels: {", "labels: {"+label+", ", 1)
}

// requireCompletes checks that the node is drained, worked on and given back, and that nothing is left.
func (n neighbour) requireCompletes(s *scenario) {
	s.Helper()
	s.now = s.now.Add(gates.AnswerLifetime)
	s.passUntilComplete("driver")
	s.passes(2)
	if s.podExists("web") || s.GetNode("n1").Spec.Unschedulable {
		s.Errorf("the node was not drained, or not given back; the verdict is %s", s.verdict("driver", "n1"))
	}
	n.requireAtRest(s)
}

// requireAtRest checks that what was created to ask is deleted. A finalizer of the neighbour may keep it for a while.
func (n neighbour) requireAtRest(s *scenario) {
	s.Helper()
	if n.object.Kind != "" {
		if o := s.readAsked(n.object); o != nil && o.GetDeletionTimestamp() == nil {
			s.Errorf("%s %s is left", o.GetKind(), o.GetName())
		}
	}
	if text := s.GetNode("n1").Annotations[v1alpha1.AnnotationHandover]; text != "" {
		s.Errorf("recorded is %s", text)
	}
}

// requireNobodyLeaves checks that the node is held, and that no pod was asked to leave it.
func (n neighbour) requireNobodyLeaves(s *scenario) {
	s.Helper()
	s.requireUntouched("n1", "web")
	if n.labels != "" {
		s.requireUntouched("n1", "p1")
		s.requireUntouched("n1", "p2")
	}
}

func (s *scenario) setPodConditions(name string, trueOnes ...string) {
	s.Helper()
	p := s.pod(name)
	before := client.MergeFrom(p.DeepCopy())
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, c := range trueOnes {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodConditionType(c), Status: corev1.ConditionTrue})
	}
	s.Must(s.Client.Status().Patch(context.Background(), p, before))
}

func (s *scenario) endPod(name string) {
	s.Helper()
	s.Must(s.Client.Status().Patch(context.Background(), s.pod(name), client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`))))
}

// readAsked reads the object that asks for the node; nil if there is none.
func (s *scenario) readAsked(kind schema.GroupVersionKind) *unstructured.Unstructured {
	s.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	key := client.ObjectKey{Name: "skyhook-n1"}
	if kind == nodeMaintenance {
		key.Namespace = "default"
	}
	err := s.Client.Get(context.Background(), key, o)
	s.Must(client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return o
}

func (s *scenario) patchAsked(kind schema.GroupVersionKind, text string) {
	s.Helper()
	s.Patch(s.readAsked(kind), text)
}

func (s *scenario) setCondition(kind schema.GroupVersionKind, condition, status, reason string) {
	s.Helper()
	text := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q,"reason":%q,"message":"","lastTransitionTime":%q}]}}`, condition, status, reason, s.now.UTC().Format(time.RFC3339))
	s.Must(s.Client.Status().Patch(context.Background(), s.readAsked(kind), client.RawPatch(types.MergePatchType, []byte(text))))
}

// deleteAsked deletes the object, also against a finalizer.
func (s *scenario) deleteAsked(kind schema.GroupVersionKind) {
	s.Helper()
	if o := s.readAsked(kind); o != nil {
		s.patchAsked(kind, `{"metadata":{"finalizers":null}}`)
		s.Must(client.IgnoreNotFound(s.Client.Delete(context.Background(), o)))
	}
}

// quarantine labels the node as NVSentinel does, and names the request whose event did that.
func (s *scenario) quarantine(state, request string) {
	s.Helper()
	event := fmt.Sprintf(`[{\"checkName\":\"SkyhookMaintenance\",\"metadata\":{\"maintenanceRequestUID\":\"%s\"}}]`, request)
	s.Patch(s.GetNode("n1"), fmt.Sprintf(`{"metadata":{"labels":{"dgxc.nvidia.com/nvsentinel-state":%q},"annotations":{"quarantineHealthEvent":"%s"}}}`, state, event))
}
