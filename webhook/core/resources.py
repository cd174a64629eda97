"""What a Pod takes, by the scheduler's own formula, in exact integers.

Source: k8s.io/component-helpers/resource (PodRequests, PodLimits), Kubernetes 1.36: init containers run one after the
other, sidecars (init containers with restartPolicy Always) go on running beside everything that starts later.
"""

from collections.abc import Iterable
from functools import lru_cache

from webhook.core.pod import Amounts, Container, Pod, Resources
from webhook.core.quantity import quantity_value
from webhook.core.quota import Cost, CounterPlan, canonical, is_cpu

_NANO = 10**9
_LONGEST_ECHO = 40  # characters of a tenant's text that an error repeats
_PREFIXES = ("requests.", "limits.")
_BYTES = frozenset({"memory", "ephemeral-storage"})
_BINARY_SUFFIXES = (("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10))


@lru_cache(maxsize=4096)
def _nano(text: str) -> int:
    """Return a quantity in billionths, rounded up: Kubernetes holds nothing finer."""
    value = quantity_value(text) * _NANO
    return -(-value.numerator // value.denominator)


def _of(amounts: Amounts | None, name: str) -> int | None:
    found = amounts.get(name) if amounts else None
    if found is None:
        return None
    try:
        return _nano(str(found))
    except ValueError as error:
        raise ValueError(f"{name}: {str(found)[:_LONGEST_ECHO]!r}: {error}") from None


def _taken(resources: Resources | None, side: str, name: str) -> int:
    """Return one container's share; a request that is absent is its limit, as the API server defaults it."""
    if resources is None:
        return 0
    if side == "limits":
        return _of(resources.limits, name) or 0
    requested = _of(resources.requests, name)
    return (_of(resources.limits, name) or 0) if requested is None else requested


def _total(pod: Pod, side: str, name: str) -> int:
    """Return what the whole Pod takes of one resource, in billionths."""
    running = sum([_taken(container.resources, side, name) for container in pod.spec.containers or ()])
    total, sidecars = running, 0
    for container in pod.spec.init_containers or ():
        share = _taken(container.resources, side, name)
        if _is_sidecar(container):
            sidecars += share
            total = max(total, sidecars)
        else:
            total = max(total, sidecars + share)
    total = max(total, running + sidecars)
    if pod.spec.resources is not None:
        # A request that is absent is what the containers ask together; where they ask nothing, it is the limit.
        whole = _of(getattr(pod.spec.resources, side), name)
        total = (total or _of(pod.spec.resources.limits, name) or 0) if whole is None else whole
    overhead = _of(pod.spec.overhead, name) or 0
    # The scheduler adds overhead to a limit only where there is one: 0 means "no limit".
    return total + overhead if side == "requests" or total else total


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _one(pod: Pod, resource: str) -> int:
    """Return the amount of one canonical resource: millicores for cpu, whole units else, rounded up."""
    side, name, unit = _meaning(resource)
    return -(-_total(pod, side, name) // unit)


@lru_cache(maxsize=1024)
def _meaning(resource: str) -> tuple[str, str, int]:
    """Return which side of a container's resources is meant, the name there, and the counting unit in billionths."""
    prefix = next((prefix for prefix in _PREFIXES if resource.startswith(prefix)), "")
    return (
        prefix.removesuffix(".") or "requests",
        resource.removeprefix(prefix),
        _NANO // 1000 if is_cpu(resource) else _NANO,
    )


def counted(plan: CounterPlan) -> tuple[str, ...]:
    """Return every resource that the windows count, by canonical name."""
    return tuple(dict.fromkeys(limit.counts for window in plan.windows for limit in window.limits))


def taken(pod: Pod, names: Iterable[str]) -> Cost:
    """Return what the Pod takes of each resource. ValueError: an unreadable quantity."""
    return {name: 1 if name == "pods" else _one(pod, name) for name in names}


def shown(resource: str, amount: int) -> int | str:
    """Return an amount as Kubernetes would write it: a number where it counts things, else a canonical quantity."""
    name = canonical(resource)
    if is_cpu(name):
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if name.partition(".")[2] in _BYTES or "hugepages-" in name:
        for suffix, shift in _BINARY_SUFFIXES:
            if amount and amount % (1 << shift) == 0:
                return f"{amount >> shift}{suffix}"
        return str(amount)
    return amount
