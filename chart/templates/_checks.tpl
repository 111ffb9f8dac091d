{{/* Rules that the values schema cannot express. */}}
{{- define "skyhook.check" -}}
{{- $manager := .Values.controllerManager -}}
{{- $env := $manager.manager.env -}}
{{- if eq .Release.Namespace "default" -}}
{{- fail "Skyhook must not be installed in the namespace default, because its LimitRange would apply to your pods there: install it with --namespace skyhook --create-namespace" -}}
{{- end -}}
{{- if and $manager.selectors ($manager.nodeAffinity | default dict).matchExpressions -}}
{{- fail "controllerManager.selectors and controllerManager.nodeAffinity.matchExpressions exclude each other: write the selectors as matchExpressions, or remove these" -}}
{{- end -}}
{{- $least := ($manager.podDisruptionBudget | default dict).minAvailable -}}
{{- if and $least (not (kindIs "string" $least)) (ge (int $least) (int $manager.replicas)) -}}
{{- fail (printf "controllerManager.podDisruptionBudget.minAvailable is %d and controllerManager.replicas is %d: no node with an operator could be drained. Lower it, or set minAvailable to 0 for no budget" (int $least) (int $manager.replicas)) -}}
{{- end -}}
{{- if and (gt (int $manager.replicas) 1) (ne (toString $env.leaderElection) "true") -}}
{{- fail "controllerManager.manager.env.leaderElection is off with more than one of controllerManager.replicas: they would work against each other. Turn it on, or use one replica (with podDisruptionBudget.minAvailable 0)" -}}
{{- end -}}
{{- if and (include "skyhook.port" $env.probePort) (not (hasPrefix ":" $env.probePort)) (not (hasPrefix "0.0.0.0:" $env.probePort)) (not (hasPrefix "[::]:" $env.probePort)) -}}
{{- fail (printf "controllerManager.manager.env.probePort %q: kubelets probe the operator from outside the pod, so write :PORT, or 0 for no probes" $env.probePort) -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not (include "skyhook.port" $env.metricsPort)) -}}
{{- fail "metrics.serviceMonitor.enabled needs metrics, and controllerManager.manager.env.metricsPort is off: set a port such as :8080" -}}
{{- end -}}
{{- $metrics := .Values.metrics -}}
{{- if and $metrics.serviceMonitor.enabled (include "skyhook.guarded" .) (not $metrics.tlsSecret) (not $metrics.serviceMonitor.insecureSkipVerify) -}}
{{- fail "metrics.serviceMonitor: with controllerManager.manager.env.metricsSecure Prometheus sends its token, and cannot verify a certificate that the operator signs itself. Set metrics.tlsSecret to a Secret with tls.crt, tls.key and ca.crt, such as one of cert-manager (docs/metrics.md); or set metrics.serviceMonitor.insecureSkipVerify to true, as charts did before: then whoever is between them gets the token" -}}
{{- end -}}
{{- if and $metrics.tlsSecret (not (include "skyhook.guarded" .)) -}}
{{- fail "metrics.tlsSecret: metrics are served without TLS. Set controllerManager.manager.env.metricsSecure to \"true\", or remove it" -}}
{{- end -}}
{{- if and $env.prometheusTokenFile (not (contains "https://" $env.prometheusEndpoints)) -}}
{{- fail "controllerManager.manager.env.prometheusTokenFile: no server gets the token. Name one that begins with https:// in controllerManager.manager.env.prometheusEndpoints" -}}
{{- end -}}
{{- range $manager.extraVolumes -}}
{{- if or (eq .name "token") (and $metrics.tlsSecret (eq .name "metrics-certificate")) -}}
{{- fail (printf "controllerManager.extraVolumes: the name %s is in use, for a volume of the chart. Choose another one" .name) -}}
{{- end -}}
{{- end -}}
{{- include "skyhook.checkMigration" . -}}
{{- end -}}

{{/* The chart sets this environment variable of the operator, so it must not be in extraEnv: (list NAME ROOT). */}}
{{- define "skyhook.checkExtraEnv" -}}
{{- $name := index . 0 -}}
{{- range (index . 1).Values.controllerManager.manager.extraEnv -}}
{{- if eq .name $name -}}
{{- fail (printf "controllerManager.manager.extraEnv: %s is a setting of the chart. Set its value, see docs/install.md" $name) -}}
{{- end -}}
{{- end -}}
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
{{- fail (printf "NodeWright %s has taken over Skyhook %s, and the nodes are recorded for it: finished packages would run again. Stop NodeWright's operator and run kubectl skyhook migrate nodewright --apply first, see docs/migrating.md" $name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
