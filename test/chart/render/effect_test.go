// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/loader"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"sigs.k8s.io/yaml"
)

// settings are the values that become an environment variable of the operator, with a value that is not the default.
var settings = map[string]struct{ env, value string }{
	"copyDirRoot":             {"COPY_DIR_ROOT", "/opt/skyhook"},
	"agentLogRoot":            {"AGENT_LOG_ROOT", "/opt/log"},
	"leaderElection":          {"LEADER_ELECTION", "false"},
	"waitForOtherOperators":   {"WAIT_FOR_OTHER_OPERATORS", "false"},
	"logEncoder":              {"LOG_ENCODER", "console"},
	"logTimeEncoder":          {"LOG_TIME_ENCODER", "epoch"},
	"logStackTraceLevel":      {"LOG_STACK_TRACE_LEVEL", "error"},
	"metricsPort":             {"METRICS_PORT", ":9090"},
	"metricsSecure":           {"METRICS_SECURE", "true"},
	"probePort":               {"PROBE_PORT", ":9091"},
	"pprofPort":               {"PPROF_PORT", "127.0.0.1:6060"},
	"reapplyOnReboot":         {"REAPPLY_ON_REBOOT", "true"},
	"rebootProof":             {"REBOOT_PROOF", "agent"},
	"runtimeRequiredTaint":    {"RUNTIME_REQUIRED_TAINT", "new=node:NoExecute"},
	"pauseImage":              {"PAUSE_IMAGE", "registry.example/pause@sha256:01"},
	"nodeOpDefaultImage":      {"NODEOP_DEFAULT_IMAGE", "registry.example/tools:1"},
	"sentinelImage":           {"SENTINEL_IMAGE", "registry.example/shell:1"},
	"prometheusEndpoints":     {"PROMETHEUS_ENDPOINTS", "https://prometheus.example.com"},
	"prometheusTokenFile":     {"PROMETHEUS_TOKEN_FILE", "/etc/prometheus/token"},
	"nodeOpNamespaces":        {"NODEOP_NAMESPACES", "ops,edge"},
	"kairosLabels":            {"KAIROS_LABELS", "false"},
	"alwaysPull":              {"ALWAYS_PULL", "true"},
	"pinImages":               {"PIN_IMAGES", "true"},
	"prepull":                 {"PREPULL", "true"},
	"podLayout":               {"POD_LAYOUT", "Compact"},
	"imageVolumesFrom":        {"IMAGE_VOLUMES_FROM", "1.33"},
	"stageDeadline":           {"STAGE_DEADLINE", "90m"},
	"interruptDeadline":       {"INTERRUPT_DEADLINE", "45m"},
	"interruptMemory":         {"INTERRUPT_MEMORY", "512Mi"},
	"keepRemovedPackages":     {"KEEP_REMOVED_PACKAGES", "true"},
	"defaultDeploymentPolicy": {"DEFAULT_DEPLOYMENT_POLICY", "careful"},
	"parallelNodes":           {"PARALLEL_NODES", "64"},
}

// Every setting reaches the operator under the name it reads. That the operator reads these names is seen
// where it runs with them.
func TestSettings(t *testing.T) {
	var values map[string]any
	if err := yaml.Unmarshal(valuesFile(t), &values); err != nil {
		t.Fatal(err)
	}
	for name := range descend(t, values, "settings") {
		c, known := settings[name]
		if !known {
			t.Errorf("settings.%s is not in this test: what does it do?", name)
			continue
		}
		raw, err := json.Marshal(c.value)
		if err != nil {
			t.Fatal(err)
		}
		if name == "prometheusTokenFile" {
			raw = append(raw, ", prometheusEndpoints: https://prometheus.example.com"...)
		}
		changed := "{replicaCount: 1, settings: {" + name + ": " + string(raw) + "}}"
		before, after := environmentOf(findManager(t, renderChart(t, ""))), environmentOf(findManager(t, renderChart(t, changed)))
		if before[c.env] == c.value || after[c.env] != c.value {
			t.Errorf("settings.%s: %s is %q, and by default %q; want %q", name, c.env, after[c.env], before[c.env], c.value)
		}
	}
}

func valuesFile(t *testing.T) []byte {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "chart", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func descend(t *testing.T, m map[string]any, path ...string) map[string]any {
	t.Helper()
	for _, p := range path {
		next, ok := m[p].(map[string]any)
		if !ok {
			t.Fatalf("values have no %s", strings.Join(path, "."))
		}
		m = next
	}
	return m
}

// ownTag is the tag of images where no value names one.
var ownTag = func() string {
	chart, err := loader.Load("../../../chart")
	if err != nil {
		panic(err)
	}
	return chart.(*chartv2.Chart).Metadata.AppVersion
}()

// others are values that change what is rendered, and what they change it to: for each leaf of values.yaml that is no
// setting of the environment.
var others = map[string]struct{ values, appears string }{
	"profile":                          {"profile: Compatible", `{"name":"PROFILE","value":"Compatible"}`},
	"replicaCount":                     {"replicaCount: 3", `"replicas":3`},
	"podDisruptionBudget.minAvailable": {"{replicaCount: 3, podDisruptionBudget: {minAvailable: 2}}", `"minAvailable":2`},
	"tolerations":                      {"tolerations: [{key: t1, operator: Exists}]", `"tolerations":[{"key":"t1","operator":"Exists"}]`},
	"nodeSelector":                     {"nodeSelector: {s1: v1}", `"nodeSelector":{"s1":"v1"}`},
	"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms": {"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: m1, operator: Exists}]}]}}}", `"nodeSelectorTerms":[{"matchExpressions":[{"key":"m1","operator":"Exists"}]}]`},
	"priorityClassName":                      {"priorityClassName: p1", `"priorityClassName":"p1"`},
	"serviceAccount.annotations":             {"serviceAccount: {annotations: {a1: v1}}", `"annotations":{"a1":"v1"}`},
	"selectorLabels":                         {"selectorLabels: {l0: v0}", `"matchLabels":{"l0":"v0"}`},
	"podAnnotations":                         {"podAnnotations: {a3: v3}", `"annotations":{"a3":"v3","kubectl.kubernetes.io/default-container":"manager"}`},
	"topologySpreadConstraints":              {"{topologySpreadConstraints: [{maxSkew: 1, topologyKey: z1, whenUnsatisfiable: DoNotSchedule}], selectorLabels: {l0: v0}}", `"topologySpreadConstraints":[{"labelSelector":{"matchLabels":{"l0":"v0"}},"maxSkew":1,"topologyKey":"z1","whenUnsatisfiable":"DoNotSchedule"}]`},
	"extraVolumes":                           {"extraVolumes: [{name: v4, emptyDir: {}}]", `{"emptyDir":{},"name":"v4"}]`},
	"extraEnv":                               {"extraEnv: [{name: E1, value: x}]", `{"name":"E1","value":"x"}]`},
	"extraVolumeMounts":                      {"extraVolumeMounts: [{name: v4, mountPath: /x}]", `{"mountPath":"/x","name":"v4"}]`},
	"image.repository":                       {"image: {repository: r/o}", `"image":"r/o:` + ownTag + `"`},
	"image.tag":                              {"image: {tag: t1}", `skyhook/operator:t1"`},
	"image.digest":                           {"image: {digest: 'sha256:" + digest + "'}", `skyhook/operator:` + ownTag + `@sha256:` + digest},
	"image.pullPolicy":                       {"image: {pullPolicy: Always}", `"imagePullPolicy":"Always"`},
	"agentImage.repository":                  {"agentImage: {repository: r/a}", `{"name":"AGENT_IMAGE","value":"r/a:` + ownTag + `"}`},
	"agentImage.tag":                         {"agentImage: {tag: t1}", `skyhook/agent:t1"`},
	"agentImage.digest":                      {"agentImage: {tag: t1, digest: 'sha256:" + digest + "'}", `skyhook/agent:t1@sha256:` + digest},
	"resources":                              {"resources: {requests: {cpu: 7m}}", `"resources":{"requests":{"cpu":"7m"}}`},
	"nameOverride":                           {"nameOverride: n5", `"name":"skyhook-n5-controller-manager"`},
	"fullnameOverride":                       {"fullnameOverride: n6", `"name":"n6-controller-manager"`},
	"podLabels":                              {"podLabels: {l9: v9}", `"l9":"v9"`},
	"commonLabels":                           {"commonLabels: {l8: v8}", `"l8":"v8"`},
	"serviceAccount.create":                  {"serviceAccount: {create: false, name: n7}", `"serviceAccountName":"n7"`},
	"serviceAccount.name":                    {"serviceAccount: {name: n7}", `{"kind":"ServiceAccount","name":"n7","namespace":"skyhook"}`},
	"podSecurityContext.runAsNonRoot":        {"podSecurityContext: {runAsNonRoot: false}", `"runAsNonRoot":false`},
	"podSecurityContext.runAsUser":           {"podSecurityContext: {runAsUser: 7}", `"runAsUser":7`},
	"podSecurityContext.runAsGroup":          {"podSecurityContext: {runAsGroup: 7}", `"runAsGroup":7`},
	"podSecurityContext.seccompProfile.type": {"podSecurityContext: {seccompProfile: {type: Unconfined}}", `"type":"Unconfined"`},
	"extraArgs":                              {"extraArgs: [--default-interval=1m]", `"args":["--default-interval=1m"]`},
	"logLevel":                               {"logLevel: debug", `{"name":"LOG_LEVEL","value":"debug"}`},
	"estimatedNodeCount":                     {"estimatedNodeCount: 4000", `"memory":"832Mi"`},
	"estimatedPackageCount":                  {"{estimatedNodeCount: 4000, estimatedPackageCount: 5}", `"memory":"1056Mi"`},
	"imagePullSecrets":                       {"imagePullSecrets: [{name: s1}, {name: s2}]", `{"name":"IMAGE_PULL_SECRET","value":"s1,s2"}`},
	"hostNetwork":                            {"hostNetwork: true", `"hostNetwork":true`},
	"limitRange.default.cpu":                 {"limitRange: {default: {cpu: 2}}", `"default":{"cpu":2,"memory":"512Mi"}`},
	"limitRange.default.memory":              {"limitRange: {default: {memory: 2Gi}}", `"default":{"cpu":"500m","memory":"2Gi"}`},
	"limitRange.defaultRequest.cpu":          {"limitRange: {defaultRequest: {cpu: 1m}}", `"defaultRequest":{"cpu":"1m","memory":"256Mi"}`},
	"limitRange.defaultRequest.memory":       {"limitRange: {defaultRequest: {memory: 1Mi}}", `"defaultRequest":{"cpu":"250m","memory":"1Mi"}`},
	"rbac.aggregateToOperator":               {"rbac: {aggregateToOperator: false}", ""},
	"rbac.createSkyhookViewerRole":           {"rbac: {createSkyhookViewerRole: true}", `"name":"skyhook-viewer-role"`},
	"rbac.createSkyhookEditorRole":           {"rbac: {createSkyhookEditorRole: true}", `"name":"skyhook-editor-role"`},
	"crds.install":                           {"crds: {install: false}", ""},
	"defaultDeploymentPolicy.create":         {"defaultDeploymentPolicy: {create: true}", `"name":"DEFAULT_DEPLOYMENT_POLICY","value":"skyhook-default"`},
	"defaultDeploymentPolicy.spec.default.budget.percent":                  {"defaultDeploymentPolicy: {create: true, spec: {default: {budget: {percent: 20}}}}", `{\"budget\":{\"percent\":20}`},
	"defaultDeploymentPolicy.spec.default.strategy.fixed.initialBatch":     {"defaultDeploymentPolicy: {create: true, spec: {default: {strategy: {fixed: {initialBatch: 7}}}}}", `\"initialBatch\":7`},
	"defaultDeploymentPolicy.spec.default.strategy.fixed.failureThreshold": {"defaultDeploymentPolicy: {create: true, spec: {default: {strategy: {fixed: {failureThreshold: 3}}}}}", `\"failureThreshold\":3`},
	"defaultDeploymentPolicy.spec.default.strategy.fixed.safetyLimit":      {"defaultDeploymentPolicy: {create: true, spec: {default: {strategy: {fixed: {safetyLimit: 30}}}}}", `\"safetyLimit\":30`},
	"admissionWarnings.create":                                             {"admissionWarnings: {create: false}", ""},
	"operatorPods.restrict":                                                {"operatorPods: {restrict: false}", ""},
	"operatorPods.images":                                                  {"operatorPods: {images: [registry.example/p/]}", `[\"registry.example/p/\"].exists(p, i.startsWith(p))`},
	"cleanup.enabled":                                                      {"cleanup: {enabled: true}", `-skyhook-cleanup"`},
	"cleanup.guardRemoval":                                                 {"cleanup: {guardRemoval: true}", "skyhook-operator-guard-role"},
	"cleanup.jobTimeoutSeconds":                                            {"cleanup: {enabled: true, jobTimeoutSeconds: 600}", `"activeDeadlineSeconds":600`},
	"networkPolicy.enabled":                                                {"networkPolicy: {enabled: false}", ""},
	"networkPolicy.metricsFrom":                                            {"networkPolicy: {metricsFrom: [{podSelector: {}}]}", `"from":[{"podSelector":{}}]`},
	"networkPolicy.egress":                                                 {"networkPolicy: {egress: [{ports: [{port: 6443}]}]}", `"egress":[{"ports":[{"port":6443}]}]`},
	"metricsService.type":                                                  {"metricsService: {type: NodePort}", `"type":"NodePort"`},
	"metricsService.annotations.prometheus.io/scrape":                      {"metricsService: {annotations: {prometheus.io/scrape: 'false'}}", `"prometheus.io/scrape":"false"`},
	"metricsService.annotations.prometheus.io/port":                        {"metricsService: {annotations: {prometheus.io/port: '1'}}", `"prometheus.io/port":"1"`},
	"metricsService.annotations.prometheus.io/scheme":                      {"metricsService: {annotations: {prometheus.io/scheme: https}}", `"prometheus.io/scheme":"https"`},
	"metricsService.ports":                                                 {"metricsService: {ports: [{name: p1, port: 8443, targetPort: metrics}]}", `"ports":[{"name":"p1","port":8443,"targetPort":"metrics"}]`},
	"metrics.addServiceAccountBinding":                                     {"metrics: {addServiceAccountBinding: true}", `"subjects":[{"kind":"ServiceAccount","name":"prometheus","namespace":"monitoring"}]`},
	"metrics.serviceAccountName":                                           {"metrics: {addServiceAccountBinding: true, serviceAccountName: n1}", `"name":"n1","namespace":"monitoring"`},
	"metrics.serviceAccountNamespace":                                      {"metrics: {addServiceAccountBinding: true, serviceAccountNamespace: n2}", `"name":"prometheus","namespace":"n2"`},
	"metrics.tlsSecret":                                                    {"{metrics: {tlsSecret: s5, serviceMonitor: {enabled: true}}, settings: {metricsSecure: 'true'}}", `"tlsConfig":{"ca":{"secret":{"key":"ca.crt","name":"s5"}},"serverName":"skyhook-operator-controller-manager-metrics-service.skyhook.svc"}`},
	"metrics.serviceMonitor.insecureSkipVerify":                            {"{metrics: {serviceMonitor: {enabled: true, insecureSkipVerify: true}}, settings: {metricsSecure: 'true'}}", `"tlsConfig":{"insecureSkipVerify":true}`},
	"metrics.serviceMonitor.enabled":                                       {"metrics: {serviceMonitor: {enabled: true}}", `"kind":"ServiceMonitor"`},
	"metrics.serviceMonitor.interval":                                      {"metrics: {serviceMonitor: {enabled: true, interval: 7s}}", `"interval":"7s"`},
	"metrics.serviceMonitor.labels":                                        {"metrics: {serviceMonitor: {enabled: true, labels: {l1: v1}}}", `"l1":"v1"`},
	"metrics.prometheusRule.enabled":                                       {"metrics: {prometheusRule: {enabled: true}}", `"kind":"PrometheusRule"`},
	"metrics.prometheusRule.labels":                                        {"metrics: {prometheusRule: {enabled: true, labels: {l2: v2}}}", `"l2":"v2"`},
	"metrics.dashboards.enabled":                                           {"metrics: {dashboards: {enabled: true}}", `"name":"skyhook-operator-dashboards"`},
	"metrics.dashboards.labels.grafana_dashboard":                          {"metrics: {dashboards: {enabled: true, labels: {grafana_dashboard: mine}}}", `"grafana_dashboard":"mine"`},
	"metrics.dashboards.annotations":                                       {"metrics: {dashboards: {enabled: true, annotations: {a2: v2}}}", `"annotations":{"a2":"v2"}`},
	"securityContext.allowPrivilegeEscalation":                             {"securityContext: {allowPrivilegeEscalation: true}", `"allowPrivilegeEscalation":true`},
	"securityContext.readOnlyRootFilesystem":                               {"securityContext: {readOnlyRootFilesystem: false}", `"readOnlyRootFilesystem":false`},
	"securityContext.capabilities.drop":                                    {"securityContext: {capabilities: {drop: [CHOWN]}}", `"drop":["CHOWN"]`},
}

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// Every other value changes what is rendered, in the way this table says.
func TestEffects(t *testing.T) {
	var values map[string]any
	if err := yaml.Unmarshal(valuesFile(t), &values); err != nil {
		t.Fatal(err)
	}
	defaults := renderedText(t, renderChart(t, ""))
	for _, leaf := range leafPaths("", values) {
		if strings.HasPrefix(leaf, "settings.") {
			continue
		}
		c, known := others[leaf]
		if !known {
			t.Errorf("%s is not in this test: what does it do?", leaf)
			continue
		}
		got := renderedText(t, renderChart(t, c.values))
		if got == defaults {
			t.Errorf("%s has no effect", leaf)
		}
		if strings.Contains(defaults, c.appears) && c.appears != "" || !strings.Contains(got, c.appears) {
			t.Errorf("%s: %s is in what the defaults give (%v), or not in what\n%s\ngives", leaf, c.appears, strings.Contains(defaults, c.appears), c.values)
		}
	}
}

// renderedText returns everything that is rendered, in one line.
func renderedText(t *testing.T, r *Result) string {
	t.Helper()
	raw, err := json.Marshal([]any{r.Objects, r.Hooks})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// leafPaths returns the paths of the values that are no maps.
func leafPaths(path string, m map[string]any) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		below := strings.TrimPrefix(path+"."+key, ".")
		if inner, ok := m[key].(map[string]any); ok && len(inner) > 0 {
			out = append(out, leafPaths(below, inner)...)
		} else {
			out = append(out, below)
		}
	}
	return out
}
