{{/*
Every template begins with this: it gives values with former names, those of the predecessor's charts and of ours until v0.1, to
the names of values.yaml. A former name counts where the new one has its default, and where values of a release that is upgraded
do not have the new one.
*/}}
{{- define "skyhook.former" -}}
{{- if not (hasKey .Values "former") -}}
{{- $own := .Values.controllerManager | default dict -}}
{{- $manager := $own.manager | default dict -}}
{{- $env := $manager.env | default dict -}}
{{- $found := dict -}}
{{- $names := list -}}
{{- range list
  (list "" .Values "useHostNetwork" "hostNetwork")
  (list "controllerManager." $own "replicas" "replicaCount")
  (list "controllerManager." $own "podDisruptionBudget" "podDisruptionBudget")
  (list "controllerManager." $own "tolerations" "tolerations")
  (list "controllerManager." $own "selectors" "nodeSelector")
  (list "controllerManager." $own "priorityClassName" "priorityClassName")
  (list "controllerManager." $own "selectorLabels" "selectorLabels")
  (list "controllerManager." $own "serviceAccount" "serviceAccount")
  (list "controllerManager." $own "podAnnotations" "podAnnotations")
  (list "controllerManager." $own "topologySpreadConstraints" "topologySpreadConstraints")
  (list "controllerManager." $own "extraVolumes" "extraVolumes")
  (list "controllerManager.manager." $manager "extraVolumeMounts" "extraVolumeMounts")
  (list "controllerManager.manager." $manager "extraEnv" "extraEnv")
  (list "controllerManager.manager." $manager "image" "image")
  (list "controllerManager.manager." $manager "agent" "agentImage")
  (list "controllerManager.manager." $manager "resources" "resources")
  (list "controllerManager.manager." $manager "containerSecurityContext" "securityContext")
  (list "controllerManager.manager.env." $env "logLevel" "logLevel")
-}}
{{- $value := get (index . 1) (index . 2) -}}
{{- $isNone := and (kindIs "invalid" $value) (has (index . 3) (list "image" "agentImage" "serviceAccount")) -}}
{{- if and (hasKey (index . 1) (index . 2)) (not $isNone) -}}
{{- $_ := set $found (index . 3) $value -}}
{{- $names = append $names (printf "%s%s is now %s" (index . 0) (index . 2) (index . 3)) -}}
{{- end -}}
{{- end -}}
{{- with omit $env "logLevel" "enableWebhooks" "jobStageTimeout" "jobBackoffLimit" "jobTtlSucceeded" "jobTtlFailed" "legacyCleanupDelay" "publishLegacyMetrics" -}}
{{- $_ := set $found "settings" . -}}
{{- $names = append $names "controllerManager.manager.env is now settings" -}}
{{- end -}}
{{- if or .Values.imagePullSecret (hasKey .Values "defaultImagePullSecret") -}}
{{- $name := .Values.imagePullSecret | default .Values.defaultImagePullSecret -}}
{{- $_ := set $found "imagePullSecrets" (ternary (list (dict "name" $name)) list (not (empty $name))) -}}
{{- $names = append $names "imagePullSecret and defaultImagePullSecret are now imagePullSecrets" -}}
{{- end -}}
{{- $defaults := .Files.Get "files/defaults.yaml" | fromYaml -}}
{{- if not (hasKey .Values "settings") -}}
{{- range list "image" "agentImage" "serviceAccount" "podSecurityContext" "affinity" "settings" -}}
{{- $_ := set $.Values . (get $defaults .) -}}
{{- end -}}
{{- $defaults = .Files.Get "files/defaults.yaml" | fromYaml -}}
{{- end -}}
{{- include "skyhook.take" (list .Values $defaults $found) -}}
{{- with ($own.nodeAffinity | default dict).matchExpressions -}}
{{- $expressions := . -}}
{{- range dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" list ($.Values.affinity | default dict) -}}
{{- $_ := set . "matchExpressions" (concat (.matchExpressions | default list) $expressions) -}}
{{- end -}}
{{- $names = append $names "controllerManager.nodeAffinity is now affinity.nodeAffinity" -}}
{{- end -}}
{{- $_ := set .Values "former" $names -}}
{{- end -}}
{{- end -}}

{{/* Sets what was found under former names where a value is the default: (list VALUES DEFAULTS FOUND). */}}
{{- define "skyhook.take" -}}
{{- $values := index . 0 -}}
{{- $defaults := index . 1 -}}
{{- range $name, $found := index . 2 -}}
{{- $default := get $defaults $name -}}
{{- $value := get $values $name -}}
{{- if and (kindIs "map" $default) (kindIs "map" $value) (kindIs "map" $found) $default -}}
{{- include "skyhook.take" (list $value $default $found) -}}
{{- else if or (not (hasKey $values $name)) (eq (toJson $value) (toJson $default)) -}}
{{- $_ := set $values $name $found -}}
{{- end -}}
{{- end -}}
{{- end -}}
