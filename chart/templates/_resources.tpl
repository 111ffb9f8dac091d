{{/*
Requests and limits of the operator: as set, or computed for N nodes and P packages from measurements, see
docs/operator_resources_at_scale.md. Values are whole millicores and mebibytes.
*/}}
{{- define "skyhook.resources" -}}
{{- if .Values.controllerManager.manager.resources -}}
{{- toYaml .Values.controllerManager.manager.resources -}}
{{- else -}}
{{- $nodes := float64 .Values.estimatedNodeCount -}}
{{- $memory := maxf 256 (addf 96 (divf (mulf 7 $nodes (addf 10 .Values.estimatedPackageCount)) 1000)) -}}
limits:
  cpu: {{ maxf 1000 (mulf 0.4 $nodes) | ceil | int64 }}m
  memory: {{ mulf 2 $memory | ceil | int64 }}Mi
requests:
  cpu: {{ maxf 500 (mulf 0.1 $nodes) | ceil | int64 }}m
  memory: {{ $memory | ceil | int64 }}Mi
{{- end -}}
{{- end -}}

{{/* Placement of operators and the clean-up job. */}}
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
