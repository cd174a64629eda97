"""Reviews outside a server: simulated API server calls, manifests, and explanations."""
