{{/*
Requests and limits of the operator: as given, or computed for N nodes and P packages. Values are whole millicores and
mebibytes.
*/}}
{{- define "skyhook.resources" -}}
{{- if .Values.controllerManager.manager.resources -}}
{{- toYaml .Values.controllerManager.manager.resources -}}
{{- else -}}
{{- $nodes := float64 .Values.estimatedNodeCount -}}
{{- $work := maxf 1 (mulf 0.4 .Values.estimatedPackageCount) -}}
{{- $cpu := mulf 1.6 $nodes $work -}}
limits:
  cpu: {{ maxf 1000 $cpu | ceil | int64 }}m
  memory: {{ maxf 512 (mulf 0.8 $nodes $work) | ceil | int64 }}Mi
requests:
  cpu: {{ maxf 500 (divf $cpu 2) | ceil | int64 }}m
  memory: {{ maxf 256 (mulf 0.45 $nodes) | ceil | int64 }}Mi
{{- end -}}
{{- end -}}

{{/* Where operators and the clean-up job run. */}}
{{- define "skyhook.nodeAffinity" -}}
requiredDuringSchedulingIgnoredDuringExecution:
  nodeSelectorTerms:
    - matchExpressions:
        - key: kubernetes.io/arch
          operator: In
          values: [amd64, arm64]
        - key: kubernetes.io/os
          operator: In
          values: [linux]
        {{- with (.Values.controllerManager.nodeAffinity | default dict).matchExpressions }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end -}}
