"""Podgate: admission-time scheduling interceptor for Kubernetes."""
