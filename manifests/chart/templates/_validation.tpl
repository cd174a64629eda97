{{/* Conditions between values, which the schema cannot explain. */}}
{{- define "podgate.validate" -}}
{{- $values := .Values -}}
{{- if ne .Release.Namespace "podgate-system" }}
{{- fail (printf "namespace %q: Podgate's ConfigMaps, Leases and Secrets are in podgate-system: add --namespace podgate-system" .Release.Namespace) }}
{{- end }}
{{- with $values.store }}
{{- if and (eq .type "redis") (not .url) }}
{{- fail "store.url: \"\": with store.type redis it is the URL of your Redis, such as redis://redis.podgate-system.svc:6379/0" }}
{{- end }}
{{- if and (eq .type "memory") .url }}
{{- fail (printf "store.url: %q: only with store.type redis" .url) }}
{{- end }}
{{- if and .tls.secretName (not (hasPrefix "rediss" .url)) }}
{{- fail (printf "store.tls.secretName: %q: only with TLS: write rediss instead of redis in store.url" .tls.secretName) }}
{{- end }}
{{- if and .sentinelCredentials.secretName (not (contains "+sentinel:" .url)) }}
{{- fail (printf "store.sentinelCredentials.secretName: %q: only for Sentinels: write redis+sentinel://... in store.url" .sentinelCredentials.secretName) }}
{{- end }}
{{- if and (eq .type "memory") (gt (int $values.server.replicas) 1) }}
{{- fail (printf "server.replicas: %d: in memory only one server may count: set 1, or use store.type redis" (int $values.server.replicas)) }}
{{- end }}
{{- end }}
{{- if and (eq $values.tokens.issuer "own") (eq $values.certificates.manager "cert-manager") }}
{{- fail "tokens.issuer: own: Podgate writes no Secret of cert-manager: use cluster or file, or another certificates.manager" }}
{{- end }}
{{- if $values.reduced.enabled }}
{{- if $values.apiserverFiles.enabled }}
{{- fail "apiserverFiles.enabled: true: in reduced mode kube-apiserver has no credentials: set false" }}
{{- end }}
{{- if not (and $values.networkPolicy.enabled $values.networkPolicy.admissionFrom) }}
{{- fail "networkPolicy.admissionFrom: []: in reduced mode callers are not authenticated: name the addresses of your API servers (docs/reduced-mode.md)" }}
{{- end }}
{{- end }}
{{- if and $values.policy.create (not $values.policy.document) }}
{{- fail "policy.document: \"\": with policy.create it is the policy to begin with: --set-file policy.document=policy.yaml" }}
{{- end }}
{{- end }}
