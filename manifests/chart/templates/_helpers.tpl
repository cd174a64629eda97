{{/* Labels of an object: (list . NAME) */}}
{{- define "podgate.labels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "podgate.image" -}}
{{- with .Values.image -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* kube-scheduler of the cluster's version, without what its provider adds to it: v1.36.3-eks-1a2b3c4 */}}
{{- define "podgate.schedulerImage" -}}
{{- with .Values.scheduler.image -}}
{{ .repository }}:{{ .tag | default (regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" $.Capabilities.KubeVersion.Version) }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* Placement of Pods: (list . VALUES NAME), VALUES as .Values.server */}}
{{- define "podgate.placement" -}}
{{- $root := index . 0 -}}
{{- $name := index . 2 -}}
{{- with index . 1 -}}
priorityClassName: {{ $root.Values.priorityClassName }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
{{ toYaml . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
{{ toYaml . }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .spreadOver }}
topologySpreadConstraints:
{{- range .spreadOver }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {app.kubernetes.io/name: {{ $name }}}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Flags of the store, the same for servers and controller. */}}
{{- define "podgate.storeArgs" -}}
{{- if eq .Values.store.type "redis" }}
{{- with .Values.store }}
- --store={{ .url }}
{{- with .cluster }}
- --cluster={{ . }}
{{- end }}
{{- with .credentials }}
{{- if .secretName }}
{{- with .usernameKey }}
- --store-username-file=/etc/podgate/store/{{ . }}
{{- end }}
- --store-password-file=/etc/podgate/store/{{ .passwordKey }}
{{- end }}
{{- end }}
{{- with .sentinelCredentials }}
{{- if .secretName }}
{{- with .usernameKey }}
- --store-sentinel-username-file=/etc/podgate/store-sentinel/{{ . }}
{{- end }}
- --store-sentinel-password-file=/etc/podgate/store-sentinel/{{ .passwordKey }}
{{- end }}
{{- end }}
{{- with .tls }}
{{- if .secretName }}
- --store-ca=/etc/podgate/store-tls/ca.crt
{{- if .clientCertificate }}
- --store-cert=/etc/podgate/store-tls/tls.crt
- --store-key=/etc/podgate/store-tls/tls.key
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Secrets of the store by the name of their volume, as YAML. */}}
{{- define "podgate.storeSecrets" -}}
{{- if eq .Values.store.type "redis" -}}
{{- with .Values.store.credentials.secretName }}
store: {{ . }}
{{- end }}
{{- with .Values.store.sentinelCredentials.secretName }}
store-sentinel: {{ . }}
{{- end }}
{{- with .Values.store.tls.secretName }}
store-tls: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "podgate.storeMounts" -}}
{{- range $name, $_ := include "podgate.storeSecrets" . | fromYaml }}
- {name: {{ $name }}, mountPath: /etc/podgate/{{ $name }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "podgate.storeVolumes" -}}
{{- range $name, $secret := include "podgate.storeSecrets" . | fromYaml }}
- name: {{ $name }}
  secret: {secretName: {{ $secret }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{/* Flags of the leader: the server with store memory, else the controller. */}}
{{- define "podgate.certificateArgs" -}}
{{- if ne .Values.certificates.manager "files" }}
- --certificates={{ .Values.certificates.manager }}
{{- end }}
{{- if and .Values.scheduler.enabled (eq .Values.certificates.manager "own") }}
- --scheduler-certificates=true
{{- end }}
{{- if and (eq .Values.tokens.issuer "own") (not .Values.reduced.enabled) }}
- --token-issuer=https://podgate.{{ .Release.Namespace }}.svc
{{- end }}
{{- end }}

{{- define "podgate.schedulerConfiguration" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceNamespace: {{ .Release.Namespace }}
  resourceName: podgate-scheduler
podMaxBackoffSeconds: 2                   # before Kubernetes 1.33 a Pod that is woken waits so long at most
percentageOfNodesToScore: {{ .Values.scheduler.percentageOfNodesToScore }}             # up to 1,000 nodes: a sample may hold hot nodes only
profiles:
- schedulerName: podgate-scheduler
extenders:
- urlPrefix: https://podgate-extender.{{ .Release.Namespace }}.svc
  filterVerb: filter
  prioritizeVerb: prioritize
  preemptVerb: preempt                    # without it Pods are evicted for one that is refused afterwards
  weight: {{ .Values.scheduler.weight }}                               # score x weight x 10 is added to the scores of the scheduler's plugins
  enableHTTPS: true
  nodeCacheCapable: true                  # otherwise each call sends whole nodes, and is refused
  ignorable: true                         # without an answer the Pod is scheduled by the scheduler's own rules
  httpTimeout: 1s                         # while a replica hangs, each Pod holds all up twice as long
  tlsConfig:
    caFile: /etc/podgate/scheduler/ca.crt
    certFile: /etc/podgate/scheduler/tls.crt
    keyFile: /etc/podgate/scheduler/tls.key
{{- end }}
