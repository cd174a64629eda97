"""Helpers of the `queue_failures` tests that other tests use, too."""

CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
