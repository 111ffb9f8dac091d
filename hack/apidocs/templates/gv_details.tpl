{{- define "gvDetails" -}}
{{- $gv := . -}}
# {{ $gv.GroupVersionString }}

Generated from the Go types by `make generate`. Do not edit. `kubectl explain` prints the same texts; [api-validation.md](../api-validation.md) explains
what the API server rejects.

Kinds:
{{- range $i, $kind := $gv.SortedKinds }}{{ if $i }},{{ end }} {{ $gv.TypeForKind $kind | markdownRenderTypeLink }}{{ end }}.
{{ range $gv.SortedTypes }}{{ template "type" . }}{{ end }}
{{- end -}}
