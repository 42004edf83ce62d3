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
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
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

{{- /* The addresses to listen on at a port, as TOML: (list . 5300) */ -}}
{{- define "signpost.listen" -}}
{{- $port := index . 1 -}}
{{- $addresses := list -}}
{{- range (index . 0).Values.ipFamilies -}}
{{- $addresses = append $addresses (printf "%s:%v" (ternary "[::]" "0.0.0.0" (eq . "IPv6")) $port) -}}
{{- end -}}
{{ $addresses | toJson }}
{{- end -}}

{{- /* The families of a Service: as the cluster has them. */ -}}
{{- define "signpost.families" -}}
{{- if gt (len .Values.ipFamilies) 1 -}}
ipFamilyPolicy: PreferDualStack
{{- end -}}
{{- end -}}

{{- /* Not empty: the release has a namespace of this name: (list . "signpost-system"). "helm template" finds none in a cluster. */ -}}
{{- define "signpost.ownsNamespace" -}}
{{- $root := index . 0 -}}
{{- $found := lookup "v1" "Namespace" "" (index . 1) | default dict -}}
{{- $annotations := dig "metadata" "annotations" dict $found | default dict -}}
{{- $owner := list (get $annotations "meta.helm.sh/release-namespace") (get $annotations "meta.helm.sh/release-name") -}}
{{- if and (ne $root.Release.Namespace (index . 1)) (or (empty $found) (eq $owner (list $root.Release.Namespace $root.Release.Name))) -}}
true
{{- end -}}
{{- end -}}

{{- /* Metadata of a component's pods: (list . "dns" .Values.dns) */ -}}
{{- define "signpost.podMetadata" -}}
{{- $root := index . 0 -}}
labels:
  {{- include "signpost.selector" (list $root (index . 1)) | nindent 2 }}
  {{- with $root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  # Changed settings restart the pods.
  signpost.dev/config: {{ include (print $root.Template.BasePath "/config.yaml") $root | sha256sum }}
  {{- with merge (dict) (index . 2).podAnnotations $root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* Where a component's pods run: (list . .Values.dns) */ -}}
{{- define "signpost.placement" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $component.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Environment of all containers. */ -}}
{{- define "signpost.environment" -}}
{{- with .Values.env }}
env: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Spreads a component's pods over the nodes: (list . "dns") */ -}}
{{- define "signpost.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "signpost.selector" . | nindent 8 }}
{{- end -}}

{{- /* Keeps a component's pods on different nodes, if there are: (list . "api") */ -}}
{{- define "signpost.apart" -}}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "signpost.selector" . | nindent 14 }}
{{- end -}}

{{- /* Who may reach the admin port. */ -}}
{{- define "signpost.adminFrom" -}}
- namespaceSelector:
    matchLabels: {kubernetes.io/metadata.name: {{ .Values.networkPolicy.monitoringNamespace }}}
{{- with .Values.networkPolicy.adminFrom }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* A rule of egress to the cluster's resolver. */ -}}
{{- define "signpost.toResolver" -}}
- to:
    - namespaceSelector:
        matchLabels: {kubernetes.io/metadata.name: kube-system}
  ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end -}}

{{/* Whether any source is on: "true" or nothing. */}}
{{- define "signpost.readsSources" -}}
{{- range $source := list "gateway" "openshift" "ingress" "service" }}
{{- if ne (index $.Values.sources $source) "off" }}true{{ break }}{{ end }}
{{- end }}
{{- end }}
