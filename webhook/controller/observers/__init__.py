"""Observers of the watched Pods, beside the pod tracker: starts, disruptions, and Pods without a review."""
