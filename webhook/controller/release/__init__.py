"""Release of waiting Pods."""
