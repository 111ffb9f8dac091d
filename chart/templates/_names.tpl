{{/* Names. The Deployment's name becomes a label, so the common prefix has at most 44 characters. */}}
{{- define "skyhook.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 44 | trimSuffix "-" -}}
{{- end -}}

{{- define "skyhook.fullname" -}}
{{- $name := include "skyhook.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 44 | trimSuffix "-" -}}
{{- else if hasPrefix (printf "%s-" .Release.Name) $name -}}
{{- $name -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 44 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 44 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "skyhook.manager" -}}
{{- include "skyhook.fullname" . -}}-controller-manager
{{- end -}}

{{- define "skyhook.packages" -}}
{{- include "skyhook.fullname" . -}}-packages
{{- end -}}

{{- define "skyhook.cleanup" -}}
{{- include "skyhook.fullname" . -}}-skyhook-cleanup
{{- end -}}

{{- define "skyhook.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "skyhook.manager" .) -}}
{{- end -}}

{{/* The operator's ServiceAccount, as a subject of bindings. */}}
{{- define "skyhook.subjects" -}}
subjects:
  - kind: ServiceAccount
    name: {{ include "skyhook.serviceAccount" . }}
    namespace: {{ .Release.Namespace }}
{{- end -}}

{{/* The labels of every object. Those of the chart take precedence over commonLabels. */}}
{{- define "skyhook.labels" -}}
{{- merge (dict
  "app.kubernetes.io/name" (include "skyhook.name" .)
  "app.kubernetes.io/instance" .Release.Name
  "app.kubernetes.io/version" (include "skyhook.tag" (list .Values.image .) | trunc 63 | trimAll "-_.")
  "app.kubernetes.io/managed-by" .Release.Service
  "app.kubernetes.io/part-of" "skyhook-operator"
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimAll "-_.")
) (.Values.commonLabels | default dict) | toYaml -}}
{{- end -}}

{{/*
The selector of the Deployment. It is immutable, so that of a Deployment in the cluster stays: charts of the predecessor
since v0.17 have another one. The default is that of the predecessor's charts before.
*/}}
{{- define "skyhook.selector" -}}
{{- $found := lookup "apps/v1" "Deployment" .Release.Namespace (include "skyhook.manager" .) | default dict -}}
{{- $default := dict "control-plane" "controller-manager" "app.kubernetes.io/name" (include "skyhook.name" .) "app.kubernetes.io/instance" .Release.Name -}}
{{- .Values.selectorLabels | default (dig "spec" "selector" "matchLabels" dict $found) | default $default | toYaml -}}
{{- end -}}

{{/* The labels of the operator's pods, and of what is found by them. Those of the selector take precedence. */}}
{{- define "skyhook.managerLabels" -}}
{{- $own := dict "app" (include "skyhook.manager" .) "control-plane" "controller-manager" -}}
{{- merge (include "skyhook.selector" . | fromYaml) $own (include "skyhook.labels" . | fromYaml) | toYaml -}}
{{- end -}}

{{/*
The profile, and why it is that one: a value, or else what the Deployment of this release has. An earlier one has none, and what it carried
out has the defaults of its operator.
*/}}
{{- define "skyhook.profile" -}}
{{- $name := .Values.profile -}}
{{- $why := "as the value profile says" -}}
{{- if not $name -}}
{{- $name = "Recommended" -}}
{{- $why = "because this is a new installation" -}}
{{- with lookup "apps/v1" "Deployment" .Release.Namespace (include "skyhook.manager" .) -}}
{{- $name = "Compatible" -}}
{{- $why = "because an earlier version was installed, whose defaults stay" -}}
{{- range .spec.template.spec.containers -}}
{{- range .env -}}
{{- if and (eq .name "PROFILE") .value -}}
{{- $name = .value -}}
{{- $why = "as before" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "name" $name "why" $why | toYaml -}}
{{- end -}}

{{- define "skyhook.pullSecrets" -}}
{{- range $i, $secret := .Values.imagePullSecrets }}{{ if $i }},{{ end }}{{ $secret.name }}{{ end -}}
{{- end -}}

{{/* Images: (list IMAGE ROOT) */}}
{{- define "skyhook.tag" -}}
{{- (index . 0).tag | default (index . 1).Chart.AppVersion -}}
{{- end -}}

{{- define "skyhook.image" -}}
{{- $image := index . 0 -}}
{{- printf "%s:%s" $image.repository (include "skyhook.tag" .) -}}
{{- with $image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{/* The port of an address such as :8080; empty if nothing listens. */}}
{{- define "skyhook.port" -}}
{{- regexFind "[0-9]+$" (toString .) | trimPrefix "0" -}}
{{- end -}}

{{/* Not empty if metrics are served only to subjects that the API server allows. */}}
{{- define "skyhook.guarded" -}}
{{- if and (include "skyhook.port" .Values.settings.metricsPort) (eq (toString .Values.settings.metricsSecure) "true") -}}true{{- end -}}
{{- end -}}

{{/* The annotations of an object of the clean-up hook, with its weight. */}}
{{- define "skyhook.cleanupHook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/*
The name of the default DeploymentPolicy; empty for none.
*/}}
{{- define "skyhook.defaultPolicy" -}}
{{- $name := .Values.settings.defaultDeploymentPolicy -}}
{{- if .Values.defaultDeploymentPolicy.create }}{{ $name | default "skyhook-default" }}{{ else }}{{ $name }}{{ end }}
{{- end }}
