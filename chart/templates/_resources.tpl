{{/*
Requests and limits of the operator: as set, or computed for N nodes and P packages from measurements, see
docs/operator_resources_at_scale.md. Values are whole millicores and mebibytes.
*/}}
{{- define "skyhook.resources" -}}
{{- if .Values.resources -}}
{{- toYaml .Values.resources -}}
{{- else -}}
{{- $nodes := float64 .Values.estimatedNodeCount -}}
{{- $memory := addf 108 (divf (mulf 7 $nodes (addf 10 .Values.estimatedPackageCount)) 1000) -}}
limits:
  cpu: {{ maxf 1000 (mulf 0.4 $nodes) | ceil | int64 }}m
  memory: {{ maxf 512 (mulf 2 $memory) | ceil | int64 }}Mi
requests:
  cpu: {{ maxf 100 (mulf 0.1 $nodes) | ceil | int64 }}m
  memory: {{ maxf 128 $memory | ceil | int64 }}Mi
{{- end -}}
{{- end -}}

{{/* What the pods of operator and clean-up job have in common. */}}
{{- define "skyhook.pod" -}}
automountServiceAccountToken: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: token # as Kubernetes would mount it
    projected:
      defaultMode: 0444
      sources:
        - serviceAccountToken:
            path: token
            expirationSeconds: 3607
        - configMap:
            name: kube-root-ca.crt
            items:
              - key: ca.crt
                path: ca.crt
        - downwardAPI:
            items:
              - path: namespace
                fieldRef:
                  fieldPath: metadata.namespace
{{- end -}}

{{/* And their containers. */}}
{{- define "skyhook.container" -}}
image: {{ include "skyhook.image" (list .Values.image .) | quote }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - name: token
    mountPath: /var/run/secrets/kubernetes.io/serviceaccount
    readOnly: true
{{- end -}}
