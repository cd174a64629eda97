"""What commands do outside a server: reviews of manifests, simulated API server calls, and pages of output."""
