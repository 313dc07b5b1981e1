{{- define "farol.name" -}}
{{- if contains "farol" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-farol{{ end }}
{{- end }}

{{- define "farol.selector" -}}
app.kubernetes.io/name: farol
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "farol.labels" -}}
{{ include "farol.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "farol.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ required "image.tag is not set; name the release of Farol to run, or set image.digest" .tag }}{{ end }}
{{- end }}
{{- end }}

{{- /* The pod of a process: root, component, process (its values), args, ports, own (settings of the chart). */}}
{{- define "farol.pod" -}}
{{- $settings := mergeOverwrite (deepCopy .root.Values.settings) .process.settings .own }}
{{- $secrets := mergeOverwrite (deepCopy .root.Values.secrets) .process.secrets }}
metadata:
  labels:
    {{- include "farol.selector" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  {{- if ne .component "migrate" }}
  serviceAccountName: {{ include "farol.name" .root }}-{{ .component }}
  {{- end }}
  automountServiceAccountToken: {{ .process.podDeletionCost | default false }}
  enableServiceLinks: false
  {{- with .process.graceSeconds }}
  terminationGracePeriodSeconds: {{ add . 30 }}
  {{- end }}
  {{- if eq .component "migrate" }}
  restartPolicy: Never
  {{- else }}
  topologySpreadConstraints:
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "farol.selector" $.root | nindent 10 }}
          app.kubernetes.io/component: {{ $.component }}
    {{- end }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets: {{ toJson . }}
  {{- end }}
  {{- with .root.Values.nodeSelector }}
  nodeSelector: {{ toJson . }}
  {{- end }}
  {{- with .root.Values.tolerations }}
  tolerations: {{ toJson . }}
  {{- end }}
  containers:
    - name: farol
      image: {{ include "farol.image" .root }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args: {{ toJson .args }}
      env:
        - {name: TMPDIR, value: /tmp}
        {{- if .process.podDeletionCost }}
        - {name: FAROL_POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        {{- end }}
        {{- range $name, $value := $settings }}
        - {name: {{ $name }}, value: {{ $value | toString | quote }}}
        {{- end }}
        {{- range $name, $from := $secrets }}
        - {name: {{ $name }}_FILE, value: /run/secrets/farol/{{ $name }}}
        {{- end }}
      {{- with .ports }}
      ports:
        {{- range $name, $port := . }}
        - {name: {{ $name }}, containerPort: {{ $port }}}
        {{- end }}
      livenessProbe:
        httpGet: {path: /healthz, port: http}
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: http}
        timeoutSeconds: 5
      {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources: {{ toJson .process.resources }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: secrets, mountPath: /run/secrets/farol, readOnly: true}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: {{ .process.tmpSize | default "64Mi" }}}
    - name: secrets
      projected:
        defaultMode: 0440
        sources:
          {{- range $name, $from := $secrets }}
          - secret: {name: {{ $from.name }}, items: [{key: {{ $from.key }}, path: {{ $name }}}]}
          {{- end }}
{{- end }}

{{- /* A process that runs on: as farol.pod, and replicas, unless an autoscaler has them. */}}
{{- define "farol.process" -}}
{{- $name := printf "%s-%s" (include "farol.name" .root) .component }}
{{- $own := mergeOverwrite (dict "FAROL_HTTP_ADDR" "0.0.0.0:9090") .own }}
{{- $ports := mergeOverwrite (dict "http" 9090) .ports }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  labels:
    {{- include "farol.labels" .root | nindent 4 }}
  {{- with .process.serviceAccount }}
  annotations: {{ toJson . }}
  {{- end }}
automountServiceAccountToken: false
{{- if .process.podDeletionCost }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  labels:
    {{- include "farol.labels" .root | nindent 4 }}
rules:
  - {apiGroups: [""], resources: [pods], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  labels:
    {{- include "farol.labels" .root | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $name }}}
subjects:
  - {kind: ServiceAccount, name: {{ $name }}, namespace: {{ .root.Release.Namespace }}}
{{- end }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels:
    {{- include "farol.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  {{- if not .scaled }}
  replicas: {{ .process.replicas }}
  {{- end }}
  revisionHistoryLimit: 3
  selector:
    matchLabels:
      {{- include "farol.selector" .root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
  template:
    {{- include "farol.pod" (mergeOverwrite (deepCopy (omit . "root")) (dict "own" $own "ports" $ports "root" .root)) | nindent 4 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  labels:
    {{- include "farol.labels" .root | nindent 4 }}
spec:
  maxUnavailable: {{ .root.Values.disruption.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "farol.selector" .root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- /* A Service of a process: root, component, name and number of its port. */}}
{{- define "farol.service" -}}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ include "farol.name" .root }}-{{ .component }}
  labels:
    {{- include "farol.labels" .root | nindent 4 }}
spec:
  selector:
    {{- include "farol.selector" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  ports:
    - {name: {{ .port }}, port: {{ .number }}, targetPort: {{ .port }}}
{{- end }}

{{- /* Items of some states, of stages and requests. Each process says the same of them. */}}
{{- define "farol.scaling" -}}
sum(max by (action, stage, state) (
{{- if .stages -}}
{{- $names := join "|" .stages -}}
farol_scaling_items{state=~"{{ .states }}",stage=~"{{ $names }}"} or farol_scaling_items{state=~"{{ .states }}",action=~"{{ $names }}"}
{{- else -}}
farol_scaling_items{state=~"{{ .states }}"}
{{- end -}}
))
{{- end }}
