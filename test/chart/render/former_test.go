// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// formerFiles are values files as people have them, with the names of the predecessor's charts and of ours, and what they are now.
var formerFiles = map[string]struct{ former, now string }{
	"the first charts": {`
controllerManager:
  kubeRbacProxy: {args: [--v=0], image: {repository: r/kube-rbac-proxy, tag: v0.15.0}}
  manager:
    containerSecurityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    env: {copyDirRoot: /opt/skyhook, leaderElection: "true", logLevel: debug, reapplyOnReboot: "true", runtimeRequiredTaint: "a=b:NoSchedule", enableWebhooks: "true"}
    image: {repository: r/operator, tag: v1}
    agent: {repository: r/agent, tag: v2}
    resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 10m, memory: 64Mi}}
  replicas: 1
  podDisruptionBudget: {minAvailable: 0}
  serviceAccount: {annotations: {a: b}}
imagePullSecret: node-init-secret
kubernetesClusterDomain: cluster.local
useHostNetwork: false`, `
settings: {copyDirRoot: /opt/skyhook, reapplyOnReboot: true, runtimeRequiredTaint: "a=b:NoSchedule"}
logLevel: debug
image: {repository: r/operator, tag: v1}
agentImage: {repository: r/agent, tag: v2}
resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 10m, memory: 64Mi}}
replicaCount: 1
podDisruptionBudget: {minAvailable: 0}
serviceAccount: {annotations: {a: b}}`},
	"v0.15": {`
controllerManager:
  tolerations: [{key: dedicated, operator: Equal, value: system-cpu, effect: NoSchedule}]
  selectors: {dedicated: system-workload}
  manager:
    env: {agentLogRoot: /opt/log, metricsPort: ":8443", probePort: ":9081", pauseImage: "r/pause:1"}
  replicas: 3
  podDisruptionBudget: {minAvailable: 2}
webhook: {enable: true, secretName: webhook-cert}
webhookService: {type: ClusterIP}
useHostNetwork: true
cleanup: {enabled: true, jobTimeoutSeconds: 300}
estimatedNodeCount: 3000
limitRange: {default: {cpu: 1}}`, `
tolerations: [{key: dedicated, operator: Equal, value: system-cpu, effect: NoSchedule}]
nodeSelector: {dedicated: system-workload}
settings: {agentLogRoot: /opt/log, metricsPort: ":8443", probePort: ":9081", pauseImage: "r/pause:1"}
replicaCount: 3
podDisruptionBudget: {minAvailable: 2}
hostNetwork: true
cleanup: {enabled: true, jobTimeoutSeconds: 300}
estimatedNodeCount: 3000
limitRange: {default: {cpu: 1}}`},
	"v0.17": {`
fullnameOverride: skyhook-operator
controllerManager:
  nodeAffinity: {matchExpressions: [{key: dedicated, operator: In, values: [system-workload]}]}
  manager:
    image: {repository: r/operator, tag: v1, digest: "sha256:` + digest + `"}
    agent: {repository: r/agent, tag: v2, digest: "sha256:` + digest + `"}
    env: {jobStageTimeout: 1h, jobBackoffLimit: "3", jobTtlSucceeded: 1h, jobTtlFailed: 24h}
imagePullSecret: ""
selectorMigration: {enabled: true, jobTimeoutSeconds: 120}
webhook: {removalImage: r/kubectl, removalTag: 1.36.2, removalDigest: ""}`, `
fullnameOverride: skyhook-operator
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - {key: kubernetes.io/arch, operator: In, values: [amd64, arm64]}
            - {key: kubernetes.io/os, operator: In, values: [linux]}
            - {key: dedicated, operator: In, values: [system-workload]}
image: {repository: r/operator, tag: v1, digest: "sha256:` + digest + `"}
agentImage: {repository: r/agent, tag: v2, digest: "sha256:` + digest + `"}`},
	"v0.20": {`
controllerManager:
  manager:
    env: {legacyCleanupDelay: 24h, publishLegacyMetrics: "true", runtimeRequiredTaint: "nodewright.nvidia.com=runtime-required:NoSchedule"}
  podDisruptionBudget: null
rbac: {createSkyhookViewerRole: true}
metrics: {addServiceAccountBinding: true, serviceAccountName: p, serviceAccountNamespace: m}
imagePullSecret: mine
cleanup: {enabled: false}`, `
settings: {runtimeRequiredTaint: "nodewright.nvidia.com=runtime-required:NoSchedule"}
podDisruptionBudget: null
rbac: {createSkyhookViewerRole: true}
metrics: {addServiceAccountBinding: true, serviceAccountName: p, serviceAccountNamespace: m}
imagePullSecrets: [{name: mine}]`},
	"our v0.1": {`
controllerManager:
  priorityClassName: system-cluster-critical
  selectorLabels: {l: v}
  podAnnotations: {a: b}
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
  extraVolumes: [{name: ca, emptyDir: {}}]
  manager:
    extraEnv: [{name: SSL_CERT_DIR, value: /ca}]
    extraVolumeMounts: [{name: ca, mountPath: /ca}]
    image: {pullPolicy: Always}
    env: {metricsSecure: "true", alwaysPull: true, parallelNodes: 8, prometheusEndpoints: "https://p", defaultDeploymentPolicy: careful}
defaultImagePullSecret: ""`, `
priorityClassName: system-cluster-critical
selectorLabels: {l: v}
podAnnotations: {a: b}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
extraVolumes: [{name: ca, emptyDir: {}}]
extraVolumeMounts: [{name: ca, mountPath: /ca}]
extraEnv: [{name: SSL_CERT_DIR, value: /ca}]
image: {pullPolicy: Always}
settings: {metricsSecure: true, alwaysPull: true, parallelNodes: 8, prometheusEndpoints: "https://p", defaultDeploymentPolicy: careful}
imagePullSecrets: []`},
}

// A file with former names gives what one with the names of today gives; the notes name them.
func TestFormerNames(t *testing.T) {
	for name, c := range formerFiles {
		t.Run(name, func(t *testing.T) {
			former, now := renderChart(t, c.former), renderChart(t, c.now)
			if diff := cmp.Diff(now.Objects, former.Objects); diff != "" {
				t.Errorf("objects differ (-now +former)\n%s", diff)
			}
			if diff := cmp.Diff(now.Hooks, former.Hooks); diff != "" {
				t.Errorf("hooks differ (-now +former)\n%s", diff)
			}
			if strings.Contains(now.Notes, "earlier chart") || !strings.Contains(former.Notes, "controllerManager.manager.env is now settings") && strings.Contains(c.now, "settings:") {
				t.Errorf("the notes are\n%s\n---\n%s", now.Notes, former.Notes)
			}
		})
	}
}

// Both names in one file: the new one counts, setting by setting.
func TestNewNameCounts(t *testing.T) {
	m := findManager(t, renderChart(t, "{image: {tag: new}, logLevel: warn, settings: {copyDirRoot: /new}, controllerManager: {manager: {image: {tag: old, repository: r/old}, env: {logLevel: debug, copyDirRoot: /old, agentLogRoot: /old}}}}"))
	env := environmentOf(m)
	if m.Image != "r/old:new" || env["LOG_LEVEL"] != "warn" || env["COPY_DIR_ROOT"] != "/new" || env["AGENT_LOG_ROOT"] != "/old" {
		t.Errorf("the image is %s, and the operator is told %v", m.Image, env)
	}
}

// values-small.yaml is for a cluster of one node.
func TestSmall(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "chart", "values-small.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r := renderChart(t, string(text))
	requests := findManager(t, r).Resources.Requests
	if *findDeployment(t, r).Spec.Replicas != 1 || requests.Cpu().MilliValue() > 50 || requests.Memory().Value() > 96<<20 || r.Find("PodDisruptionBudget", full+"-controller-manager-pdb") != nil {
		t.Errorf("a small installation requests %v", requests)
	}
}
