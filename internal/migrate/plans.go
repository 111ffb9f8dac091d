// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
)

// PlanGVK is the kind of system-upgrade-controller.
var PlanGVK = schema.GroupVersionKind{Group: "upgrade.cattle.io", Version: "v1", Kind: "Plan"}

// The defaults of system-upgrade-controller's manifest for its Jobs.
const (
	planDeadline = 900
	planRetries  = 99
)

// plan is what is read of a Plan.
type plan struct {
	Spec struct {
		Concurrency           int64                         `json:"concurrency"`
		JobActiveDeadlineSecs *int64                        `json:"jobActiveDeadlineSecs"`
		NodeSelector          metav1.LabelSelector          `json:"nodeSelector"`
		ServiceAccountName    string                        `json:"serviceAccountName"`
		Channel               string                        `json:"channel"`
		Version               string                        `json:"version"`
		Secrets               []any                         `json:"secrets"`
		Tolerations           []corev1.Toleration           `json:"tolerations"`
		Exclusive             bool                          `json:"exclusive"`
		Window                *planWindow                   `json:"window"`
		Prepare               *planContainer                `json:"prepare"`
		Upgrade               *planContainer                `json:"upgrade"`
		Cordon                bool                          `json:"cordon"`
		Drain                 *planDrain                    `json:"drain"`
		ImagePullSecrets      []corev1.LocalObjectReference `json:"imagePullSecrets"`
		PostCompleteDelay     string                        `json:"postCompleteDelay"`
		PriorityClassName     string                        `json:"priorityClassName"`
		CustomNodeLabels      map[string]string             `json:"customNodeLabels"`
	} `json:"spec"`
	Status struct {
		LatestVersion string `json:"latestVersion"`
		LatestHash    string `json:"latestHash"`
	} `json:"status"`
}

type planWindow struct {
	Days      []string `json:"days"`
	StartTime string   `json:"startTime"`
	EndTime   string   `json:"endTime"`
	TimeZone  string   `json:"timeZone"`
}

type planContainer struct {
	Image           string          `json:"image"`
	Command         []string        `json:"command"`
	Args            []string        `json:"args"`
	Env             []corev1.EnvVar `json:"envs"`
	EnvFrom         []any           `json:"envFrom"`
	Volumes         []any           `json:"volumes"`
	SecurityContext map[string]any  `json:"securityContext"`
}

type planDrain struct {
	Timeout                  any            `json:"timeout"` // a duration, or nanoseconds
	GracePeriod              *int32         `json:"gracePeriod"`
	DeleteLocalData          *bool          `json:"deleteLocalData"`
	DeleteEmptydirData       *bool          `json:"deleteEmptydirData"`
	IgnoreDaemonSets         *bool          `json:"ignoreDaemonSets"`
	Force                    bool           `json:"force"`
	DisableEviction          bool           `json:"disableEviction"`
	SkipWaitForDeleteTimeout int64          `json:"skipWaitForDeleteTimeout"`
	PodSelector              map[string]any `json:"podSelector"`
}

// planConverter turns one Plan into manifests.
type planConverter struct {
	*Manifests
	plan
	name string
	op   *nodeopv1.NodeOpSpec
}

// FromPlan returns manifests that do the same as a Plan of system-upgrade-controller.
func FromPlan(o *unstructured.Unstructured) (*Manifests, error) {
	m := &Manifests{Original: "Plan/" + o.GetNamespace() + "/" + o.GetName(), NodeOp: newNodeOp(o.GetNamespace(), o.GetName()), Gaps: []Gap{}}
	c := &planConverter{Manifests: m, name: o.GetName(), op: &m.NodeOp.Spec}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &c.plan); err != nil {
		return nil, fmt.Errorf("%s: %w", m.Original, err)
	}
	if c.Spec.Upgrade == nil || c.Spec.Upgrade.Image == "" {
		return nil, fmt.Errorf("%s has no spec.upgrade.image", m.Original)
	}
	c.addGap("the Plan itself", "a Plan runs again when it, its version or its secrets change; a NodeOp runs once: create another one, with another name, for the next version")
	c.convertCommand()
	c.convertNodes()
	c.convertDrain()
	c.convertPace()
	c.addGaps()
	return m, nil
}

// convertCommand converts the upgrade container. SUC gives it the image's entrypoint when only args are set.
func (c *planConverter) convertCommand() {
	u := c.Spec.Upgrade
	c.op.Image = c.imageWithTag(u.Image)
	c.op.Command = slices.Concat(u.Command, u.Args)
	if len(u.Command) == 0 {
		c.convertArguments()
	}
	if c.op.Command == nil {
		c.op.Command = []string{}
	}
	for _, e := range u.Env {
		c.op.Env = append(c.op.Env, nodeopv1.EnvVar{Name: e.Name, Value: e.Value, ValueFrom: e.ValueFrom})
	}
	c.op.Env = append(c.op.Env,
		nodeopv1.EnvVar{Name: "SYSTEM_UPGRADE_NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "spec.nodeName"}}},
		nodeopv1.EnvVar{Name: "SYSTEM_UPGRADE_PLAN_NAME", Value: c.name},
		nodeopv1.EnvVar{Name: "SYSTEM_UPGRADE_PLAN_LATEST_VERSION", Value: c.version()},
		nodeopv1.EnvVar{Name: "SYSTEM_UPGRADE_PLAN_LATEST_HASH", Value: c.Status.LatestHash},
	)
	c.op.ImagePullSecrets, c.op.Tolerations = c.Spec.ImagePullSecrets, c.Spec.Tolerations
	c.addGap("spec.upgrade", "the command is privileged and has the host at /host, but not the host's processes and network: one that looks for processes of the host, as k3s-upgrade does, must do so by chroot /host")
}

// entrypoints are those of images that Plans commonly run with args alone.
var entrypoints = map[string]string{"k3s-upgrade": "/bin/upgrade.sh", "rke2-upgrade": "/bin/upgrade.sh"}

func (c *planConverter) convertArguments() {
	if len(c.Spec.Upgrade.Args) == 0 {
		return
	}
	image, _, _ := strings.Cut(path.Base(c.Spec.Upgrade.Image), ":")
	if entrypoint := entrypoints[image]; entrypoint != "" {
		c.op.Command = append([]string{entrypoint}, c.Spec.Upgrade.Args...)
		return
	}
	c.addGap("spec.upgrade.args", "a NodeOp has a command only: put the entrypoint of the image before it")
}

// version is the version that the Plan asks for, or that its channel had last.
func (c *planConverter) version() string {
	if c.Spec.Version != "" {
		return c.Spec.Version
	}
	return c.Status.LatestVersion
}

// imageWithTag adds the version to an image without a tag. A tag has no plus sign.
func (c *planConverter) imageWithTag(image string) string {
	version := strings.ReplaceAll(c.version(), "+", "-")
	if strings.Contains(path.Base(image), ":") || strings.Contains(image, "@") {
		return image
	}
	if version == "" {
		c.addGap("spec.version", "it is not set, and the channel has no version yet: add a tag to the image")
		return image
	}
	return image + ":" + version
}

// convertNodes converts the selection. Nodes that carry the Plan's label with its present hash are done.
func (c *planConverter) convertNodes() {
	selector := c.Spec.NodeSelector
	if c.Status.LatestHash != "" {
		selector.MatchExpressions = append(slices.Clone(selector.MatchExpressions), metav1.LabelSelectorRequirement{
			Key: "plan.upgrade.cattle.io/" + c.name, Operator: metav1.LabelSelectorOpNotIn, Values: []string{c.Status.LatestHash},
		})
	}
	c.op.NodeSelector = toSelector(selector)
}

func (c *planConverter) convertDrain() {
	yes := true
	if d := c.Spec.Drain; d != nil {
		c.op.Cordon = &yes
		c.op.DrainOptions = &nodeopv1.DrainOptions{
			Enabled: &yes, Force: &d.Force, IgnoreDaemonSets: orTrue(d.IgnoreDaemonSets), DeleteEmptyDirData: orTrue(d.DeleteEmptydirData, d.DeleteLocalData),
		}
		if d.GracePeriod != nil && *d.GracePeriod >= 0 {
			c.op.DrainOptions.GracePeriodSeconds = d.GracePeriod
		}
		c.convertDrainTimeout(d.Timeout)
		return
	}
	if c.Spec.Cordon {
		c.op.Cordon = &yes
	}
}

func (c *planConverter) convertDrainTimeout(v any) {
	var timeout time.Duration
	switch t := v.(type) {
	case nil:
		return
	case int64:
		timeout = time.Duration(t)
	case float64:
		timeout = time.Duration(t)
	default:
		var err error
		if timeout, err = parseDuration(t); err != nil {
			c.addGap("spec.drain.timeout", "%v; the drain has no limit", err)
			return
		}
	}
	if timeout > 0 {
		seconds := int32(min(wholeSeconds(timeout), math.MaxInt32))
		c.op.DrainOptions.TimeoutSeconds = &seconds
	}
}

// orTrue is the first value that is set, or true.
func orTrue(values ...*bool) *bool {
	for _, v := range values {
		if v != nil {
			return v
		}
	}
	yes := true
	return &yes
}

// convertPace converts how many nodes are worked on, when, and what a failure means: SUC starts no other node.
func (c *planConverter) convertPace() {
	yes, retries := true, int32(planRetries)
	concurrency := int32(min(max(c.Spec.Concurrency, 1), math.MaxInt32))
	if c.Spec.Concurrency < 1 {
		c.addGap("spec.concurrency", "it is not set; one node at a time")
	}
	c.op.Concurrency, c.op.StopOnFailure, c.op.BackoffLimit = concurrency, &yes, &retries
	deadline := int64(planDeadline)
	switch secs := c.Spec.JobActiveDeadlineSecs; {
	case secs != nil && *secs > 0:
		deadline = *secs
	case secs != nil:
		deadline = math.MaxInt32
	}
	c.op.ActiveDeadlineSeconds = &deadline
	if w := c.Spec.Window; w != nil {
		c.convertWindow(w)
	}
	if c.Spec.PostCompleteDelay == "" {
		return
	}
	delay, err := parseDuration(c.Spec.PostCompleteDelay)
	switch {
	case err != nil:
		c.addGap("spec.postCompleteDelay", "%v", err)
	case delay > 0:
		c.ensurePolicy(int(concurrency)).Spec.Soak = &metav1.Duration{Duration: min(delay, maxSoak)}
	}
}

func (c *planConverter) convertWindow(w *planWindow) {
	windows, err := timeWindow{days: w.Days, start: w.StartTime, end: w.EndTime, zone: w.TimeZone}.toWindows()
	if err != nil {
		c.addGap("spec.window", "%v: nodes are started at any time", err)
		return
	}
	if windows == nil {
		return
	}
	c.ensurePolicy(int(c.op.Concurrency)).Spec.Windows = windows
	if len(windows.Open[0].Weekdays) > 0 && crossesMidnight(windows.Open[0].Hours) {
		c.addGap("spec.window.days", "a window that crosses midnight belongs to the day on which it opens")
	}
}

// addGaps names the fields that are set and have no counterpart.
func (c *planConverter) addGaps() {
	s, u := &c.Spec, c.Spec.Upgrade
	d := s.Drain
	if d == nil {
		d = &planDrain{}
	}
	for _, gap := range []struct {
		isSet       bool
		field, text string
	}{
		{s.Channel != "" && s.Version == "", "spec.channel", "channels are not followed; the version is " + c.version()},
		{s.ServiceAccountName != "", "spec.serviceAccountName", "the command has the default service account of the namespace: one that needs the Kubernetes API needs a role for that"},
		{len(s.Secrets) > 0, "spec.secrets", "no Secret is mounted; env can take values from Secrets"},
		{s.Prepare != nil, "spec.prepare", "it is not run: a NodeOp has a preflight, which cannot write to the host. Nodes of the control plane go first without it, and a second NodeOp can be created when the first is complete"},
		{s.Exclusive, "spec.exclusive", "nothing is needed: the operator never does two things on one node"},
		{s.PriorityClassName != "", "spec.priorityClassName", "pods of a NodeOp have the default priority"},
		{len(s.CustomNodeLabels) > 0, "spec.customNodeLabels", "no labels are set; status.nodeStatuses shows which nodes are complete"},
		{len(u.EnvFrom) > 0, "spec.upgrade.envFrom", "list each variable in env"},
		{len(u.Volumes) > 0, "spec.upgrade.volumes", "the host is mounted at /host, and nothing else"},
		{len(u.SecurityContext) > 0, "spec.upgrade.securityContext", "the command is privileged, and runs as the user of its image"},
		{d.DisableEviction, "spec.drain.disableEviction", "pods are evicted, which PodDisruptionBudgets can refuse until timeoutSeconds"},
		{d.SkipWaitForDeleteTimeout > 0, "spec.drain.skipWaitForDeleteTimeout", "the drain waits until each pod is gone"},
		{len(d.PodSelector) > 0, "spec.drain.podSelector", "every pod is drained, except those of DaemonSets"},
		{s.JobActiveDeadlineSecs == nil, "spec.jobActiveDeadlineSecs", "it is not set; 900 is the default of the controller's manifest, which its ConfigMap can change"},
	} {
		if gap.isSet {
			c.addGap(gap.field, "%s", gap.text)
		}
	}
}
