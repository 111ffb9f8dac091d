{{/* Rules that the values schema cannot express. */}}
{{- define "skyhook.check" -}}
{{- $former := .Values.controllerManager | default dict -}}
{{- $settings := .Values.settings -}}
{{- if eq .Release.Namespace "default" -}}
{{- fail "Skyhook must not be installed in the namespace default, because its LimitRange would apply to your pods there: install it with --namespace skyhook --create-namespace" -}}
{{- end -}}
{{- if and $former.selectors ($former.nodeAffinity | default dict).matchExpressions -}}
{{- fail "controllerManager.selectors and controllerManager.nodeAffinity.matchExpressions exclude each other: write nodeSelector and affinity.nodeAffinity instead" -}}
{{- end -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.create is off: set serviceAccount.name to the ServiceAccount that the operator uses" -}}
{{- end -}}
{{- $least := (.Values.podDisruptionBudget | default dict).minAvailable -}}
{{- if and $least (not (kindIs "string" $least)) (gt (int .Values.replicaCount) 1) (ge (int $least) (int .Values.replicaCount)) -}}
{{- fail (printf "podDisruptionBudget.minAvailable is %d and replicaCount is %d: no node with an operator could be drained. Lower it, or set minAvailable to 0 for no budget" (int $least) (int .Values.replicaCount)) -}}
{{- end -}}
{{- if and (gt (int .Values.replicaCount) 1) (ne (toString $settings.leaderElection) "true") -}}
{{- fail "settings.leaderElection is off and replicaCount is more than one: they would work against each other. Turn it on, or use one replica" -}}
{{- end -}}
{{- if and (include "skyhook.port" $settings.probePort) (not (hasPrefix ":" $settings.probePort)) (not (hasPrefix "0.0.0.0:" $settings.probePort)) (not (hasPrefix "[::]:" $settings.probePort)) -}}
{{- fail (printf "settings.probePort %q: kubelets probe the operator from outside the pod, so write :PORT, or 0 for no probes" $settings.probePort) -}}
{{- end -}}
{{- $metrics := .Values.metrics -}}
{{- if and $metrics.serviceMonitor.enabled (not (include "skyhook.port" $settings.metricsPort)) -}}
{{- fail "metrics.serviceMonitor.enabled needs metrics, and settings.metricsPort is off: set a port such as :8080" -}}
{{- end -}}
{{- if and $metrics.serviceMonitor.enabled (include "skyhook.guarded" .) (not $metrics.tlsSecret) (not $metrics.serviceMonitor.insecureSkipVerify) -}}
{{- fail "metrics.serviceMonitor: with settings.metricsSecure Prometheus sends its token, and cannot verify a certificate that the operator signs itself. Set metrics.tlsSecret to a Secret with tls.crt, tls.key and ca.crt, such as one of cert-manager (docs/metrics.md); or set metrics.serviceMonitor.insecureSkipVerify to true, as charts did before: then whoever is between them gets the token" -}}
{{- end -}}
{{- if and $metrics.tlsSecret (not (include "skyhook.guarded" .)) -}}
{{- fail "metrics.tlsSecret: metrics are served without TLS. Set settings.metricsSecure to true, or remove it" -}}
{{- end -}}
{{- if and $settings.prometheusTokenFile (not (contains "https://" $settings.prometheusEndpoints)) -}}
{{- fail "settings.prometheusTokenFile: no server gets the token. Name one that begins with https:// in settings.prometheusEndpoints" -}}
{{- end -}}
{{- range .Values.extraVolumes -}}
{{- if or (eq .name "token") (and $metrics.tlsSecret (eq .name "metrics-certificate")) -}}
{{- fail (printf "extraVolumes: the name %s is in use, for a volume of the chart. Choose another one" .name) -}}
{{- end -}}
{{- end -}}
{{- include "skyhook.checkMigration" . -}}
{{- end -}}

{{/*
Since v0.18 NodeWright carries out a NodeWright for each Skyhook, and removes the records of the Skyhook from nodes. Without
them finished packages would run again. kubectl skyhook migrate nodewright restores them, and marks the Skyhook. A Skyhook
that is younger than the NodeWright was created again since.
*/}}
{{- define "skyhook.checkMigration" -}}
{{- $crds := "apiextensions.k8s.io/v1" -}}
{{- if and (lookup $crds "CustomResourceDefinition" "" "nodewrights.nodewright.nvidia.com") (lookup $crds "CustomResourceDefinition" "" "skyhooks.skyhook.nvidia.com") -}}
{{- range (lookup "nodewright.nvidia.com/v1alpha1" "NodeWright" "" "").items -}}
{{- $name := .metadata.name -}}
{{- $skyhook := (lookup "skyhook.nvidia.com/v1alpha1" "Skyhook" "" $name).metadata | default dict -}}
{{- if and $skyhook (not (hasKey ($skyhook.annotations | default dict) "skyhook.nvidia.com/migrated-from")) (le $skyhook.creationTimestamp .metadata.creationTimestamp) -}}
{{- fail (printf "NodeWright %s has taken over Skyhook %s, and the nodes are recorded for it: finished packages would run again. Stop NodeWright's operator and run kubectl skyhook migrate nodewright --apply first, see docs/upgrading.md" $name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
