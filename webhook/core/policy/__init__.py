"""Policy: its model, the matching of Pods to services, and its recent history."""
