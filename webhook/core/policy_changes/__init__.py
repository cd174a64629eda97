"""Changes of the policy: the review of its ConfigMap and of the overrides', and the difference of two policies."""
