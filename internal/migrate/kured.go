// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	scheduling "k8s.io/component-helpers/scheduling/corev1"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// FindKured returns the container of kured in a DaemonSet; nil when it is another DaemonSet.
func FindKured(d *appsv1.DaemonSet) *corev1.Container {
	containers := d.Spec.Template.Spec.Containers
	for i := range containers {
		image, _, _ := strings.Cut(containers[i].Image, "@")
		name := path.Base(image)
		if at := strings.IndexByte(name, ':'); at >= 0 {
			name = name[:at]
		}
		if name == "kured" {
			return &containers[i]
		}
	}
	return nil
}

// kuredConverter turns the flags of one DaemonSet into manifests.
type kuredConverter struct {
	*Manifests
	daemonSet *appsv1.DaemonSet
	container *corev1.Container
	flags     kuredFlags
	spec      *nodeopv1.NodeOpSpec
}

// FromKured returns manifests that do the same as a DaemonSet of kured in a cluster of these nodes.
func FromKured(d *appsv1.DaemonSet, nodes []corev1.Node) (*Manifests, error) {
	container := FindKured(d)
	if container == nil {
		return nil, fmt.Errorf("DaemonSet %s/%s has no container of kured", d.Namespace, d.Name)
	}
	flags, unknown := readKuredFlags(container)
	m := &Manifests{Original: "DaemonSet/" + d.Namespace + "/" + d.Name, NodeOp: newNodeOp(d.Namespace, d.Name), Gaps: []Gap{}}
	c := &kuredConverter{Manifests: m, daemonSet: d, container: container, flags: flags, spec: &m.NodeOp.Spec}
	for _, name := range unknown {
		const text = "its value comes from a Secret or a ConfigMap, and is not read"
		if kuredGaps[name] != "" {
			c.addGap("--"+name, text)
			continue
		}
		c.suspend("--"+name, text)
	}
	if len(container.EnvFrom) > 0 {
		c.suspend("envFrom", "flags that come from a Secret or a ConfigMap are not read")
	}
	c.addGap("--period", "a NodeOp looks at each node once, and kured every %s: create it again as often, for example by a CronJob with kubectl create", c.flags.get("period"))
	c.convertWork()
	c.convertDrain()
	c.selectNodes(nodes)
	c.convertPace()
	c.convertWindow()
	c.convertAlerts()
	c.addFlagGaps()
	return m, nil
}

func newNodeOp(namespace, name string) *nodeopv1.NodeOp {
	return &nodeopv1.NodeOp{
		TypeMeta:   metav1.TypeMeta{APIVersion: nodeopv1.GroupVersion.String(), Kind: "NodeOp"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
	}
}

// convertWork converts what makes a node reboot, and the reboot.
func (c *kuredConverter) convertWork() {
	yes := true
	c.spec.RebootOnSuccess, c.spec.Cordon, c.spec.UncordonOnFailure = &yes, &yes, &yes
	c.spec.Command = []string{"true"}
	if delay := c.duration("reboot-delay"); delay > 0 {
		c.spec.Command = []string{"sleep", strconv.FormatInt(wholeSeconds(delay), 10)}
	}
	const skip = `|| echo 'no reboot is required' > /dev/termination-log`
	if command := c.flags.get("reboot-sentinel-command"); command != "" {
		c.spec.Preflight = &nodeopv1.Preflight{Command: []string{"sh", "-c", `chroot "$HOST_DIR" ` + command + " " + skip}}
		c.suspend("--reboot-sentinel-command", "it runs in a chroot of the host that is read-only, and without the host's process ids")
		return
	}
	test := ""
	for _, file := range c.sentinelFiles() {
		if !isPlainPath.MatchString(file) {
			c.suspend("--reboot-sentinel", "%q has characters that a shell reads", file)
		}
		test += ` -o -e "$HOST_DIR` + file + `"`
	}
	c.spec.Preflight = &nodeopv1.Preflight{Command: []string{"sh", "-c", "test" + strings.TrimPrefix(test, " -o") + " " + skip}}
}

var isPlainPath = regexp.MustCompile(`^[\w./-]+$`)

// sentinelFiles are the paths of the sentinel on the host. The flag has a path in the container if a volume is mounted there.
// /var/run is a link to /run on most hosts, and a link that begins at the root leads out of the mounted host.
func (c *kuredConverter) sentinelFiles() []string {
	file := path.Clean(c.flags.get("reboot-sentinel"))
	for _, mount := range c.container.VolumeMounts {
		rest, below := strings.CutPrefix(file, strings.TrimSuffix(mount.MountPath, "/")+"/")
		if !below {
			continue
		}
		for _, v := range c.daemonSet.Spec.Template.Spec.Volumes {
			if v.Name == mount.Name && v.HostPath != nil {
				file = path.Join(v.HostPath.Path, rest)
			}
		}
	}
	if rest, ok := strings.CutPrefix(file, "/var/run/"); ok {
		return []string{"/run/" + rest, file}
	}
	return []string{file}
}

// convertDrain converts the drain. kured evicts pods without a controller and with an emptyDir volume.
func (c *kuredConverter) convertDrain() {
	yes := true
	c.spec.DrainOptions = &nodeopv1.DrainOptions{Enabled: &yes, Force: &yes, DeleteEmptyDirData: &yes, IgnoreDaemonSets: &yes}
	if grace := c.number("drain-grace-period"); grace >= 0 {
		c.spec.DrainOptions.GracePeriodSeconds = &grace
	}
	if timeout := c.duration("drain-timeout"); timeout > 0 {
		seconds := int32(min(wholeSeconds(timeout), math.MaxInt32))
		c.spec.DrainOptions.TimeoutSeconds = &seconds
	}
	c.convertSelector("drain-pod-selector", &c.spec.DrainOptions.PodSelector)
	c.convertSelector("blocking-pod-selector", &c.spec.DrainOptions.PodNonInterruptLabels)
	if c.spec.DrainOptions.PodNonInterruptLabels != nil {
		c.spec.DrainOptions.Wait = v1alpha1.WaitBeforeCordon
	}
}

// convertSelector converts a flag that selects pods. One selector cannot select the pods of two.
func (c *kuredConverter) convertSelector(name string, to any) {
	values := c.flags[name]
	if len(values) == 0 {
		return
	}
	parsed, err := metav1.ParseToLabelSelector(c.flags.get(name))
	if err == nil && len(values) == 1 {
		err = toSelector(*parsed, to)
	}
	if err != nil || len(values) > 1 {
		c.suspend("--"+name, "%q cannot be converted into one selector of pods", values)
	}
}

// selectNodes selects the nodes on which the DaemonSet runs.
func (c *kuredConverter) selectNodes(nodes []corev1.Node) {
	pod := c.daemonSet.Spec.Template.Spec
	selector := metav1.LabelSelector{MatchLabels: maps.Clone(pod.NodeSelector)}
	if !toleratesControlPlane(pod.Tolerations) {
		selector.MatchExpressions = append(selector.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: "node-role.kubernetes.io/control-plane", Operator: metav1.LabelSelectorOpDoesNotExist})
	}
	if pod.Affinity != nil && pod.Affinity.NodeAffinity != nil && pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		added, ok := toRequirements(terms)
		if !ok {
			c.suspend("affinity", "only one term of labels with In, NotIn, Exists and DoesNotExist can be selected, and the nodes are not limited by it")
		}
		selector.MatchExpressions = append(selector.MatchExpressions, added...)
	}
	selected, err := metav1.LabelSelectorAsSelector(&selector)
	if err = cmp.Or(err, toSelector(selector, &c.spec.NodeSelector)); err != nil {
		c.suspend("nodeSelector", "%v", err)
		return
	}
	c.checkTaints(slices.DeleteFunc(slices.Clone(nodes), func(n corev1.Node) bool { return !selected.Matches(labels.Set(n.Labels)) }))
}

// checkTaints names selected nodes on which kured does not run, because it does not tolerate a taint. Every DaemonSet tolerates what
// Kubernetes says of the state of a node.
func (c *kuredConverter) checkTaints(selected []corev1.Node) {
	isLimit := func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(t.Key, "node.kubernetes.io/")
	}
	var tainted []string
	for i := range selected {
		tolerations := c.daemonSet.Spec.Template.Spec.Tolerations
		if _, isTainted := scheduling.FindMatchingUntoleratedTaint(logr.Discard(), selected[i].Spec.Taints, tolerations, isLimit, true); isTainted {
			tainted = append(tainted, selected[i].Name)
		}
	}
	c.addGap("tolerations", "pods of a NodeOp tolerate every taint: a node that gets a taint later is selected too")
	if len(tainted) > 0 {
		c.suspend("tolerations", "kured does not run on %s because of a taint, and the NodeOp does", output.List(tainted, 3))
	}
}

func toleratesControlPlane(tolerations []corev1.Toleration) bool {
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		isKey := t.Key == "" || t.Key == "node-role.kubernetes.io/control-plane"
		return isKey && (t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule)
	})
}

func toRequirements(terms []corev1.NodeSelectorTerm) ([]metav1.LabelSelectorRequirement, bool) {
	if len(terms) != 1 || len(terms[0].MatchFields) > 0 {
		return nil, false
	}
	var out []metav1.LabelSelectorRequirement
	for _, e := range terms[0].MatchExpressions {
		switch operator := metav1.LabelSelectorOperator(e.Operator); operator {
		case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
			out = append(out, metav1.LabelSelectorRequirement{Key: e.Key, Operator: operator, Values: e.Values})
		default:
			return nil, false
		}
	}
	return out, true
}

// convertPace converts how many nodes reboot at the same time. A node that does not come back keeps kured's lock, as it keeps
// its slot in a budget; with a time after which the lock expires, only concurrency limits the nodes.
func (c *kuredConverter) convertPace() {
	concurrency := max(c.number("concurrency"), 1)
	c.spec.Concurrency = &concurrency
	c.setPolicy(int64(concurrency))
	if ttl := c.duration("lock-ttl"); ttl > 0 {
		seconds, all := int32(min(wholeSeconds(ttl), math.MaxInt32)), int32(100)
		c.spec.RebootTimeoutSeconds = &seconds
		c.Policy.Spec.Default.Budget = v1alpha1.Budget{Percent: &all}
	}
	if delay := c.duration("lock-release-delay"); delay > 0 {
		if delay > maxSoak {
			c.suspend("--lock-release-delay", "%s is longer than the longest soak of a policy, %s", delay, maxSoak)
		}
		c.Policy.Spec.Soak = &metav1.Duration{Duration: min(delay, maxSoak)}
	}
}

func (c *kuredConverter) convertWindow() {
	w := timeWindow{days: c.flags.list("reboot-days"), start: c.flags.get("start-time"), end: c.flags.get("end-time"), zone: c.flags.get("time-zone")}
	windows, err := w.toWindows()
	if err != nil {
		c.suspend("--reboot-days, --start-time, --end-time, --time-zone", "%v", err)
		return
	}
	c.Policy.Spec.Windows = windows
}

// suspend names a limit of kured that cannot be converted, and lets nothing start until somebody has replaced it.
func (c *kuredConverter) suspend(name, format string, args ...any) {
	c.spec.Suspend = new(true)
	c.addGap(name, format+": the NodeOp has suspend: true, until you have replaced this limit", args...)
}

// convertAlerts converts the check for alerts into a query that counts those which matter.
func (c *kuredConverter) convertAlerts() {
	url := c.flags.get("prometheus-url")
	if url == "" {
		return
	}
	if !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
		c.suspend("--prometheus-url", "%q is not an address with http:// or https://, and alerts are not checked", url)
		return
	}
	var labels []string
	if c.flags.get("alert-firing-only") == "true" {
		labels = append(labels, `alertstate="firing"`)
	}
	if filter := c.flags.get("alert-filter-regexp"); filter != "" {
		operator := "!~"
		if c.flags.get("alert-filter-match-only") == "true" {
			operator = "=~"
		}
		labels = append(labels, "alertname"+operator+strconv.Quote(".*(?:"+filter+").*"))
	}
	none := v1alpha1.Decimal("0")
	c.Policy.Spec.Health = &v1alpha1.HealthGates{Prometheus: []v1alpha1.PrometheusGate{{
		Name: "alerts", URL: url, Query: "count(ALERTS{" + strings.Join(labels, ",") + "}) or vector(0)", AtMost: &none,
	}}}
}

// addFlagGaps names the flags that are set and have no counterpart.
func (c *kuredConverter) addFlagGaps() {
	for _, name := range slices.Sorted(maps.Keys(c.flags)) {
		_, known := kuredDefaults[name]
		switch {
		case !known:
			c.suspend("--"+name, "this flag is not known")
		case c.flags.isSet(name) && kuredGaps[name] != "":
			c.addGap("--"+name, "%s", kuredGaps[name])
		}
	}
}

// duration is the value of a flag; one that is not a duration is named, and counts as 0.
func (c *kuredConverter) duration(name string) time.Duration {
	text := c.flags.get(name)
	if text == "0" {
		return 0
	}
	d, err := parseDuration(text)
	if err != nil {
		c.addGap("--"+name, "%v", err)
	}
	return d
}

func (c *kuredConverter) number(name string) int32 {
	n, err := strconv.ParseInt(c.flags.get(name), 10, 32)
	if err != nil {
		c.addGap("--"+name, "%q is not a number; the default applies", c.flags.get(name))
		n, _ = strconv.ParseInt(cmp.Or(kuredDefaults[name], "0"), 10, 32)
	}
	return int32(n)
}

// wholeSeconds rounds up.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
