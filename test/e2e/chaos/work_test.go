// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/test/e2e/chaos/observer"
	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// The objects of the work.
const (
	settings = "chaos-settings" // two packages, one depends on the other; the config of one changes, and the other is uninstalled
	services = "chaos-services" // restarts a service; it is upgraded
	kernel   = "chaos-kernel"   // reboots; it is deleted, which uninstalls its package

	protectedPod = "training"
	guardedApp   = "web"
	operation    = "chaos-operation"
)

// roundTimeout bounds each step of a round. Work that faults delay is done well before; work that is stuck is not.
const roundTimeout = 15 * time.Minute

var (
	skyhooks = schema.GroupVersionResource{Group: "skyhook.nvidia.com", Version: "v1alpha1", Resource: "skyhooks"}
	policies = schema.GroupVersionResource{Group: "skyhook.nvidia.com", Version: "v1alpha1", Resource: "deploymentpolicies"}
	nodeOps  = schema.GroupVersionResource{Group: "operator.kairos.io", Version: "v1alpha1", Resource: "nodeops"}
)

// workload is what runs on the nodes: a Deployment with a disruption budget, and a pod on the fourth node that must not be interrupted.
const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}]
      containers: [{name: web, image: "registry.k8s.io/pause:3.10"}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}, unhealthyPodEvictionPolicy: AlwaysAllow}
---
apiVersion: v1
kind: Pod
metadata: {name: training, labels: {protect: "yes"}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  tolerations: [{operator: Exists}]
  containers: [{name: training, image: "registry.k8s.io/pause:3.10"}]
`

// policy lets one node of the pool, and one of the others, be worked on at the same time, whoever works on them.
const policy = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: chaos}
spec:
  scope: Policy
  default: {budget: {count: 1}, strategy: {fixed: {initialBatch: 1}}}
  compartments:
  - {name: pool, selector: {matchLabels: {chaos-pool: "yes"}}, budget: {count: 1}, strategy: {fixed: {initialBatch: 1}}}
`

const nodeOp = `
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: ` + operation + `}
spec:
  nodeSelector: {matchLabels: {chaos-operation: "yes"}}
  image: busybox:latest
  hostMountPath: /host
  command: [sh, -c, "echo done > /host/var/lib/chaos/operation"]
  cordon: true
  drainOptions: {enabled: true, force: true, ignoreDaemonSets: true, deleteEmptyDirData: true}
  rebootOnSuccess: true
  backoffLimit: 30
  concurrency: 4
  deploymentPolicy: chaos
---
`

// pack is a package of a Skyhook whose scripts write what they did to the host.
func pack(skyhook, name, version, value, more string) string {
	return packWith(skyhook, name, version, value, more, func(string) string { return "" })
}

// packWith is such a package with scripts that begin in some way, which depends on the stage.
func packWith(skyhook, name, version, value, more string, begin func(stage string) string) string {
	file := "/var/lib/chaos/" + skyhook + "." + name
	write := func(stage, suffix, text string) string {
		return begin(stage) + fmt.Sprintf("set -e; echo %[3]s > %[1]s.%[2]s.new; mv %[1]s.%[2]s.new %[1]s.%[2]s", file, suffix, text)
	}
	return fmt.Sprintf(`
    %s:
      version: %s
      image: %sshellscript%s
      configMap:
        apply.sh: %q
        apply_check.sh: %q
        upgrade.sh: %q
        config.sh: %q
        post_interrupt.sh: %q
        uninstall.sh: %q
        value: %q`, name, version, suite.PackageRepository, more,
		write("apply", "version", version), "test \"$(cat "+file+".version)\" = "+version, write("upgrade", "version", version),
		write("config", "config", value), write("post-interrupt", "post", version), "rm -f "+file+".*", value)
}

// manifest is a Skyhook of which no node goes back: with either profile a round ends with what was asked for last, whatever fails before.
func manifest(name string, packages ...string) string {
	return fmt.Sprintf(`
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: %s}
spec:
  nodeSelectors: {matchLabels: {chaos: "yes"}}
  podNonInterruptLabels: {matchLabels: {protect: "yes"}}
  deploymentPolicy: chaos
  rollback: {scope: None}
  packages:%s
---`, name, strings.Join(packages, ""))
}

const restart = "{type: service, services: [" + observer.CountedService + "]}"

func settingsManifest(value string, hasExtra bool) string {
	packages := []string{pack(settings, "base", "1.0.0", value, "\n      configInterrupts: {value: "+restart+"}")}
	if hasExtra {
		packages = append(packages, pack(settings, "extra", "1.0.0", "one", "\n      dependsOn: {base: 1.0.0}"))
	}
	return manifest(settings, packages...)
}

func servicesManifest(version string) string {
	return manifest(services, pack(services, "daemon", version, "one", "\n      interrupt: "+restart))
}

var kernelManifest = manifest(kernel, pack(kernel, "driver", "1.0.0", "one", "\n      interrupt: {type: reboot}\n      uninstall: {enabled: true}"))

// work does all work once and returns how it left the nodes.
func (r *run) work(name string) map[string]observer.End {
	r.Helper()
	stop := r.observe()
	defer stop()
	r.apply(policy)
	r.apply(fmt.Sprintf(workload, r.nodes[3]))
	for name, skyhook := range map[string]string{
		"base": settings, "extra": settings, "daemon": services, "driver": kernel, "lower": compact, "middle": compact, "upper": compact,
	} {
		r.observer.Want(skyhook, name, "1.0.0")
	}
	r.apply(settingsManifest("one", true) + servicesManifest("1.0.0") + kernelManifest + compactManifest("1.0.0"))
	r.finishTraining()
	r.waitComplete(settings, services, kernel, compact)
	r.say("%s: installed", name)

	r.observer.Want(services, "daemon", "1.1.0")
	r.observer.Want(settings, "extra", "")
	r.observer.Want(kernel, "driver", "")
	for _, name := range []string{"lower", "middle", "upper"} {
		r.observer.Want(compact, name, "1.1.0")
	}
	r.apply(settingsManifest("two", false) + servicesManifest("1.1.0") + compactManifest("1.1.0") + nodeOp)
	r.remove(skyhooks, kernel)
	r.waitComplete(settings, services, compact)
	r.requireCompact()
	r.waitOperation()
	r.say("%s: upgraded, config changed, uninstalled, deleted, operation done", name)

	r.waitReleased()
	ends := r.ends()
	first := ends[r.nodes[0]]
	r.say("%s: %s has %d files, the marks %v and the interrupts %v", name, r.nodes[0], len(first.Files), slices.Sorted(maps.Keys(first.Marks)), first.Interrupts)
	r.cleanUp()
	r.checkNothingLeft()
	stop()
	r.eventually("the workload is deleted", func(context.Context) error {
		_, err := cluster.TryKubectl(fmt.Sprintf(workload, r.nodes[3]), "delete", "--ignore-not-found", "-f", "-")
		return err
	})
	r.eventually("the pods of the workload are gone", func(ctx context.Context) error { // the next round judges all it sees
		pods, err := r.machines.Client.CoreV1().Pods(suite.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + guardedApp})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d of them are left", len(pods.Items))
		}
		return err
	})
	return ends
}

// finishTraining lets the protected pod end a while after its node was held, as a job does. With Recommended its node is not held before
// that, so that the pod ends a while after any other one was.
func (r *run) finishTraining() {
	r.Helper()
	awaited := r.nodes[3:]
	if r.profile == recommended {
		awaited = r.nodes[:3]
	}
	r.eventually("a node is held for which the protected pod waits", func(ctx context.Context) error {
		for _, name := range awaited {
			n, err := r.machines.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil || len(observer.Holders(n)) > 0 {
				return err
			}
		}
		return fmt.Errorf("none of %v is held", awaited)
	})
	time.Sleep(5 * time.Second)
	r.observer.Release(suite.Namespace + "/" + protectedPod)
	r.eventually("the protected pod ends", func(ctx context.Context) error {
		err := r.machines.Client.CoreV1().Pods(suite.Namespace).Delete(ctx, protectedPod, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// eventually calls check until it succeeds.
func (r *run) eventually(what string, check func(context.Context) error) {
	r.Helper()
	for deadline := time.Now().Add(roundTimeout); ; time.Sleep(time.Second) {
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		err := check(ctx)
		cancel()
		if err == nil {
			return
		}
		if len(r.observer.Violations()) > 0 {
			r.requireNoViolations()
		}
		if time.Now().After(deadline) {
			r.Fatalf("seed %d: after %s: %s: %v", *seed, roundTimeout, what, err)
		}
	}
}

// apply applies a manifest, also while the API server does not answer.
func (r *run) apply(manifest string) {
	r.Helper()
	r.eventually("a manifest is applied", func(context.Context) error {
		_, err := cluster.TryKubectl(manifest, "apply", "-f", "-")
		return err
	})
}

// waitComplete waits until Skyhooks are complete, and resumes what failures stopped: with Recommended one in the first batch does.
func (r *run) waitComplete(names ...string) {
	r.Helper()
	for _, name := range names {
		r.eventually("Skyhook "+name+" is complete", func(ctx context.Context) error {
			o, err := r.objects.Resource(skyhooks).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			status, _, _ := unstructured.NestedString(o.Object, "status", "status")
			observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
			if isStopped(o) {
				resume := "skyhook.nvidia.com/resume=" + time.Now().UTC().Truncate(time.Minute).Format(time.RFC3339)
				if _, err := cluster.TryKubectl("", "annotate", "--overwrite", "skyhook/"+name, "deploymentpolicy/chaos", resume); err != nil {
					return err
				}
			}
			if status != "complete" || observed != o.GetGeneration() {
				return fmt.Errorf("generation %d: %v", o.GetGeneration(), o.Object["status"])
			}
			return nil
		})
	}
}

func isStopped(skyhook *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(skyhook.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "RolloutStopped" && condition["status"] == "True"
	})
}

func (r *run) waitOperation() {
	r.Helper()
	r.eventually("the NodeOp is completed", func(ctx context.Context) error {
		o, err := r.objects.Resource(nodeOps).Namespace(suite.Namespace).Get(ctx, operation, metav1.GetOptions{})
		if err != nil {
			return err
		}
		phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
		if phase == "Failed" {
			r.Fatalf("seed %d: the NodeOp failed: %v", *seed, o.Object["status"])
		}
		if phase != "Completed" {
			return fmt.Errorf("%v", o.Object["status"])
		}
		return nil
	})
}

// remove deletes an object and waits until it is gone.
func (r *run) remove(kind schema.GroupVersionResource, name string) {
	r.Helper()
	objects := r.objects.Resource(kind).Namespace(map[bool]string{true: suite.Namespace}[kind == nodeOps])
	r.eventually("the deletion of "+name, func(ctx context.Context) error {
		err := objects.Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%s is there", name)
		}
		return err
	})
	r.say("  %s is gone", name)
}

// waitReleased waits a while until no node is cordoned; what stays cordoned is a violation.
func (r *run) waitReleased() {
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		list, err := r.machines.Client.CoreV1().Nodes().List(r.Context(), metav1.ListOptions{})
		if err != nil {
			continue
		}
		isOver := time.Now().After(deadline)
		held := 0
		for _, n := range list.Items {
			if n.Spec.Unschedulable {
				held++
			}
		}
		if held == 0 || isOver {
			r.observer.AtRest(time.Now(), list.Items)
			return
		}
	}
}

// cleanUp removes everything, so that the next round begins anew.
func (r *run) cleanUp() {
	r.Helper()
	for _, name := range []string{settings, services, compact} {
		r.remove(skyhooks, name)
	}
	r.remove(nodeOps, operation)
	r.remove(policies, "chaos")
	r.waitReleased()
	for _, n := range r.nodes {
		r.eventually("node "+n+" forgets the packages", func(ctx context.Context) error {
			o, err := r.machines.Client.CoreV1().Nodes().Get(ctx, n, metav1.GetOptions{})
			if err != nil {
				return err
			}
			forget := []string{}
			for key := range o.Annotations {
				if strings.HasPrefix(key, "skyhook.nvidia.com/") && strings.Contains(key, "_chaos-") {
					forget = append(forget, fmt.Sprintf("%q:null", key))
				}
			}
			patch := `{"metadata":{"annotations":{` + strings.Join(forget, ",") + `}}}`
			_, err = r.machines.Client.CoreV1().Nodes().Patch(ctx, n, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			return err
		})
	}
}

// checkNothingLeft waits a while until nothing is left of the round; what stays is a violation.
func (r *run) checkNothingLeft() {
	r.Helper()
	const ours = "skyhook.nvidia.com/name"
	var left []string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
		core := r.machines.Client.CoreV1()
		pods, err := core.Pods(suite.OperatorNamespace).List(r.Context(), metav1.ListOptions{LabelSelector: ours})
		configMaps, err2 := core.ConfigMaps(suite.OperatorNamespace).List(r.Context(), metav1.ListOptions{LabelSelector: ours})
		jobs, err3 := r.machines.Client.BatchV1().Jobs(suite.Namespace).List(r.Context(), metav1.ListOptions{LabelSelector: "kairos.io/nodeop"})
		revisions, err4 := r.machines.Client.AppsV1().ControllerRevisions(suite.OperatorNamespace).List(r.Context(), metav1.ListOptions{LabelSelector: "skyhook.nvidia.com/revision-of"})
		if err := errors.Join(err, err2, err3, err4); err != nil {
			left = []string{err.Error()}
		} else {
			left = nil
			for _, p := range pods.Items {
				left = append(left, "pod "+p.Name)
			}
			for _, m := range configMaps.Items {
				left = append(left, "ConfigMap "+m.Name)
			}
			for _, j := range jobs.Items {
				left = append(left, "Job "+j.Name)
			}
			for _, c := range revisions.Items {
				left = append(left, "ControllerRevision "+c.Name)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	for _, what := range left {
		r.observer.Left(time.Now(), what+" is left")
	}
}
