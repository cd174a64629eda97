"""The files of manifests/monitoring, run by promtool and by a real Prometheus."""
