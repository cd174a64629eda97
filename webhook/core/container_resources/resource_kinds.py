"""Kinds of container resources by name, as in k8s.io/kubernetes/pkg/apis/core/helper."""

from webhook.core.kubernetes.pod_requests import HUGE_PAGES
from webhook.core.kubernetes.quantity import quantity_value

COMPUTE = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resources without a limit, or with a limit of 0, are unbounded."""
DECIDE_QOS = ("cpu", "memory")
_NATIVE_DOMAIN = "kubernetes.io/"


def is_huge_pages(name: str) -> bool:
    return name.startswith(HUGE_PAGES)


def page_size(name: str) -> int | None:
    """Return the size of one huge page in bytes, None if the name has no valid size."""
    try:
        size = quantity_value(name.removeprefix(HUGE_PAGES))
    except ValueError:
        return None
    return int(size) if size > 0 and size.denominator == 1 else None


def is_extended(name: str) -> bool:
    """Return whether a resource is an extended resource, such as a device plugin's: counted in whole numbers."""
    return "/" in name and _NATIVE_DOMAIN not in name


def overcommits(name: str) -> bool:
    """Return whether a limit may be above its request; for other resources Kubernetes requires them to be equal."""
    return not is_extended(name) and not is_huge_pages(name)
