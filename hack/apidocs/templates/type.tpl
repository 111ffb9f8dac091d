{{- define "type" -}}
{{- $type := . -}}
{{- if markdownShouldRenderType $type }}
## {{ $type.Name }}

{{ if $type.IsAlias }}Type: {{ markdownRenderTypeLink $type.UnderlyingType | replace "(#map[string]" "(#" }}.

{{ end -}}
{{ with $type.Doc }}{{ . }}

{{ end -}}
{{ if $type.References -}}
Used by:
{{- range $i, $user := $type.SortedReferences }}{{ if $i }},{{ end }} {{ $link := markdownRenderTypeLink $user }}{{ if and (contains "/api/skyhook/" $type.Package) (contains "/api/nodeop/" $user.Package) -}}
{{ $link | replace "(#" "(operator.kairos.io.md#" }}{{ else }}{{ $link }}{{ end }}{{ end }}.

{{ end -}}
{{ if $type.Members -}}
| Field | Type | Description | Default | Validation |
|---|---|---|---|---|
{{ if $type.GVK -}}
| `apiVersion` | string | `{{ $type.GVK.Group }}/{{ $type.GVK.Version }}` | | |
| `kind` | string | `{{ $type.GVK.Kind }}` | | |
{{ end -}}
{{ range $type.Members -}}
{{ $package := .Type.Package }}{{ if and .Type.UnderlyingType (not (contains "/api/skyhook/" $package)) }}{{ $package = .Type.UnderlyingType.Package }}{{ end -}}
{{ $anchor := "(#" }}{{ if and (contains "/api/nodeop/" $type.Package) (contains "/api/skyhook/" $package) }}{{ $anchor = "(skyhook.nvidia.com.md#" }}{{ end -}}
| `{{ .Name }}` | {{ markdownRenderType .Type | replace "(#map[string]" "(#" | replace "(#" $anchor }} | {{ template "type_members" . }} | {{ markdownRenderDefault .Default }} | {{ template "rules" .Validation }} |
{{ end }}
{{- end -}}
{{ if $type.EnumValues -}}
| Value | Description |
|---|---|
{{ range $type.EnumValues -}}
| `{{ .Name }}` | {{ markdownRenderFieldDoc .Doc | replace "<br />" " " }} |
{{ end }}
{{- end -}}
{{- if $type.Validation -}}
Validation: {{ template "rules" $type.Validation }}
{{ end -}}
{{- end -}}
{{- end -}}

{{- define "rules" -}}
{{- $isFirst := true -}}
{{- range . -}}
{{- if not (or (hasPrefix "Optional" .) (hasPrefix "Schemaless" .)) -}}
{{- if not $isFirst }}; {{ end -}}{{- $isFirst = false -}}
{{- if hasPrefix "Required" . }}required{{ else }}{{ markdownRenderFieldDoc . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
