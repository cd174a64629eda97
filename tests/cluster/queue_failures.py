"""Parts of `queue_failures` tests that others use, too."""

CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
