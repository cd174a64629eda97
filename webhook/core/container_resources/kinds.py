"""Kinds of container resources, told by their names as Kubernetes does (k8s.io/kubernetes/pkg/apis/core/helper)."""

from webhook.core.kubernetes.pod_requests import HUGE_PAGES
from webhook.core.kubernetes.quantity import quantity_value

COMPUTE = frozenset({"cpu", "memory", "ephemeral-storage"})
"""A limit of 0, or none, lets a container take what it finds."""
DECIDE_QOS = ("cpu", "memory")
_NATIVE_DOMAIN = "kubernetes.io/"


def is_huge_pages(name: str) -> bool:
    return name.startswith(HUGE_PAGES)


def page_size(name: str) -> int | None:
    """Return the bytes of one of these huge pages, None where the name has no such size."""
    try:
        size = quantity_value(name.removeprefix(HUGE_PAGES))
    except ValueError:
        return None
    return int(size) if size > 0 and size.denominator == 1 else None


def is_extended(name: str) -> bool:
    """Say whether a resource is a device plugin's or the like: counted in whole numbers."""
    return "/" in name and _NATIVE_DOMAIN not in name


def overcommits(name: str) -> bool:
    """Say whether a limit may be above its request; where it may not, Kubernetes takes them equal only."""
    return not is_extended(name) and not is_huge_pages(name)
