"""Offline work of commands: reviews of manifests, simulated API server calls, and output."""
