{{- define "signpost.labels" -}}
app.kubernetes.io/name: signpost
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* Selector of one component: (list . "dns") */ -}}
{{- define "signpost.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: signpost
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "signpost.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "signpost.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- /* The same for every process. */ -}}
{{- define "signpost.probes" -}}
{{- $scheme := ternary ", scheme: HTTPS" "" (ne .Values.admin.tlsSecret "") -}}
startupProbe:
  httpGet: {path: /livez, port: admin{{ $scheme }}}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: admin{{ $scheme }}}
  periodSeconds: 10
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: admin{{ $scheme }}}
  periodSeconds: 2
  failureThreshold: 1
{{- end -}}
