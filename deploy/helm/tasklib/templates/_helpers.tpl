{{- define "tasklib.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end }}
{{- define "tasklib.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "tasklib.container" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
