// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"
	"testing"
)

// TestRefused: what cannot work is not rendered, and the message names the value.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		values string
		want   []string
	}{
		{"controllerManager: {selectors: {a: b}, nodeAffinity: {matchExpressions: [{key: a, operator: Exists}]}}",
			[]string{"controllerManager.selectors", "controllerManager.nodeAffinity.matchExpressions", "write nodeSelector and affinity.nodeAffinity instead"}},
		{"controllerManager: {podDisruptionBudget: {minAvailable: 2}}",
			[]string{"podDisruptionBudget.minAvailable is 2", "replicaCount is 2", "set minAvailable to 0"}},
		{"serviceAccount: {create: false}", []string{"set serviceAccount.name"}},
		{"controllerManager: {manager: {env: {leaderElection: 'false'}}}", []string{"leaderElection is off", "use one replica"}},
		{"controllerManager: {manager: {env: {probePort: '127.0.0.1:8081'}}}", []string{"probePort \"127.0.0.1:8081\"", "write :PORT"}},
		{"{metrics: {serviceMonitor: {enabled: true}}, controllerManager: {manager: {env: {metricsPort: '0'}}}}",
			[]string{"metrics.serviceMonitor.enabled needs metrics", "metricsPort"}},
		{"{metrics: {serviceMonitor: {enabled: true}}, controllerManager: {manager: {env: {metricsSecure: 'true'}}}}",
			[]string{"metrics.serviceMonitor: with settings.metricsSecure", "Set metrics.tlsSecret", "metrics.serviceMonitor.insecureSkipVerify"}},
		{"metrics: {tlsSecret: a}", []string{"metrics.tlsSecret: metrics are served without TLS", "metricsSecure"}},
		{"{metrics: {tlsSecret: a}, extraVolumes: [{name: metrics-certificate, emptyDir: {}}], settings: {metricsSecure: true}}",
			[]string{"extraVolumes: the name metrics-certificate is in use"}},
		{"metrics: {tlsSecret: A_b}", []string{"/metrics/tlsSecret"}},
		{"controllerManager: {manager: {env: {prometheusTokenFile: /etc/prometheus/token}}}", []string{"prometheusTokenFile: no server gets the token", "https://"}},
		{"extraVolumes: [{name: token, emptyDir: {}}]", []string{"extraVolumes: the name token is in use"}},
		{"controllerManager: {manager: {extraEnv: [{name: LOG_LEVEL, value: debug}]}}", []string{"extraEnv: LOG_LEVEL is a setting of the chart"}},
		{"extraEnv: [{name: NAMESPACE, value: other}]", []string{"extraEnv: NAMESPACE is a setting of the chart"}},
		// by the schema
		{"controllerManager: {topologySpreadConstraints: [{topologyKey: zone}]}", []string{"/topologySpreadConstraints/0", "maxSkew"}},
		{"controllerManager: {manager: {extraVolumeMounts: [{name: ca, mountPath: etc}]}}", []string{"/extraVolumeMounts/0/mountPath"}},
		{"controllerManager: {podAnnotations: {a: 1}}", []string{"/podAnnotations/a"}},
		{"controllerManager: {replicas: two}", []string{"/controllerManager/replicas", "want integer"}},
		{"controllerManager: {replica: 2}", []string{"/controllerManager", "replica"}},
		{"controllerManager: {manager: {env: {logLevel: loud}}}", []string{"/controllerManager/manager/env/logLevel", "'info'"}},
		{"controllerManager: {manager: {env: {copyDirRoot: var/lib}}}", []string{"/controllerManager/manager/env/copyDirRoot"}},
		{"controllerManager: {manager: {env: {copyDirRoot: /}}}", []string{"/controllerManager/manager/env/copyDirRoot"}},
		{"controllerManager: {manager: {env: {runtimeRequiredTaint: skyhook.nvidia.com=runtime-required}}}", []string{"/env/runtimeRequiredTaint"}},
		{"controllerManager: {manager: {env: {pauseImage: registry.k8s.io/pause}}}", []string{"/env/pauseImage"}},
		{"controllerManager: {manager: {env: {stageDeadline: 1 hour}}}", []string{"/env/stageDeadline"}},
		{"controllerManager: {manager: {env: {parallelNodes: 501}}}", []string{"/env/parallelNodes"}},
		{"controllerManager: {manager: {env: {metricsPort: 8080}}}", []string{"/env/metricsPort"}},
		{"controllerManager: {manager: {image: {digest: 0123}}}", []string{"/image/digest"}},
		{"controllerManager: {manager: {image: {repository: 'a/b@sha256:c'}}}", []string{"/image/repository"}},
		{"cleanup: {jobTimeoutSeconds: 5}", []string{"/cleanup/jobTimeoutSeconds", "30"}},
		{"imagePullSecret: [a]", []string{"/imagePullSecret"}},
		{"imagePullSecret: My_Secret", []string{"/imagePullSecret"}},
		{"limitRange: {defaults: {cpu: 1}}", []string{"/limitRange", "defaults"}},
		{"estimatedNodeCount: many", []string{"/estimatedNodeCount", "want number"}},
		{"webhooks: {enable: false}", []string{"webhooks"}},
		{"replicas: 2", []string{"replicas"}},
		{"former: [a]", []string{"former"}},
		{"settings: {logLevels: debug}", []string{"/settings", "logLevels"}},
		{"logLevel: loud", []string{"/logLevel", "'info'"}},
		{"imagePullSecrets: [a]", []string{"/imagePullSecrets/0"}},
		{"operatorPods: {images: [registry]}", []string{"/operatorPods/images/0"}},
		{"operatorPods: {image: a/}", []string{"/operatorPods", "image"}},
		{"extraArgs: [log-level=debug]", []string{"/extraArgs/0"}},
	} {
		_, err := Chart(Options{Values: c.values})
		if err == nil {
			t.Errorf("rendered, though it cannot work: %s", c.values)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s\ngives %q\nwithout %q", c.values, err, want)
			}
		}
	}
	_, err := Chart(Options{Namespace: "default"})
	if err == nil || !strings.Contains(err.Error(), "--namespace skyhook --create-namespace") {
		t.Errorf("into the namespace default: %v", err)
	}
}
