{{- define "gvList" -}}
{{- range . }}{{ template "gvDetails" . }}{{ end }}
{{- end -}}
