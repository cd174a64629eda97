"""Pod requests: resource requests and limits of a whole Pod by the scheduler's formula, in billionths of a unit.

Source: k8s.io/component-helpers/resource (PodRequests, PodLimits), Kubernetes 1.36: init containers run one after the
other; sidecars (init containers with restartPolicy Always) keep running beside everything that starts later.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from webhook.core.kubernetes.pod import Amounts, Container, Pod, Resources
from webhook.core.kubernetes.quantity import CACHED, quantity_value

NANO = 10**9
BYTES = frozenset({"memory", "ephemeral-storage"})
HUGE_PAGES = "hugepages-"
LONGEST_ECHO = 40  # characters of a tenant's text that an error repeats
_MILLI = NANO // 1000
_LARGEST_IN_BINARY = 1 << 80
_BINARY_SUFFIXES = (("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10))

Side = Literal["requests", "limits"]


def nano(text: str) -> int:
    """Return a quantity in billionths, rounded up: Kubernetes stores nothing finer."""
    return _nano(text) if len(text) <= CACHED else _nano.__wrapped__(text)


@lru_cache(maxsize=4096)
def _nano(text: str) -> int:
    value = quantity_value(text) * NANO
    return -(-value.numerator // value.denominator)


def amount_of(amounts: Amounts | None, name: str) -> int | None:
    """Return one amount, None if it is absent. ValueError: it is not a quantity."""
    found = amounts.get(name) if amounts else None
    if found is None:
        return None
    try:
        return nano(str(found))
    except ValueError as error:
        raise ValueError(f"{name}: {cut(str(found))!r}: {error}") from None


def total(pod: Pod, side: Side, name: str) -> int:
    """Return the whole Pod's request or limit of one resource. ValueError: an invalid quantity."""
    return whole(pod, side, name, of_containers(pod, side, name))


def of_containers(pod: Pod, side: Side, name: str) -> int:
    """Return the maximum that the containers use at one time."""
    running = [_taken(container.resources, side, name) for container in pod.spec.containers or ()]
    starting = [
        (_taken(container.resources, side, name), is_sidecar(container)) for container in pod.spec.init_containers or ()
    ]
    return combined(running, starting)


def combined(running: Iterable[int], starting: Iterable[tuple[int, bool]]) -> int:
    """Return the maximum use at one time. `starting`: the init containers in order, and whether each is a sidecar."""
    beside = sum(running)
    worst, sidecars = beside, 0
    for share, stays in starting:
        if stays:
            sidecars += share
            worst = max(worst, sidecars)
        else:
            worst = max(worst, sidecars + share)
    return max(worst, beside + sidecars)


def whole(pod: Pod, side: Side, name: str, containers: int) -> int:
    """Return a Pod's total from that of its containers: Pod-level resources take precedence, and overhead is added."""
    taken = containers
    if pod.spec.resources is not None:
        # An absent request is the sum of the containers'; if none of them names the resource, it is the limit.
        own = amount_of(getattr(pod.spec.resources, side), name)
        if own is not None:
            taken = own
        elif not containers and not _names(pod, name):
            taken = amount_of(pod.spec.resources.limits, name) or 0
    overhead = amount_of(pod.spec.overhead, name) or 0
    # The scheduler adds overhead to a limit only where there is one: 0 means "no limit".
    return taken + overhead if side == "requests" or taken else taken


def _names(pod: Pod, name: str) -> bool:
    """Return whether any container names a resource, even with 0."""
    return any(
        name in (amounts or ())
        for container in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
        if container.resources is not None
        for amounts in (container.resources.requests, container.resources.limits)
    )


def is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _taken(resources: Resources | None, side: Side, name: str) -> int:
    """Return one container's share; an absent request is its limit, as the API server defaults it."""
    if resources is None:
        return 0
    if side == "limits":
        return amount_of(resources.limits, name) or 0
    requested = amount_of(resources.requests, name)
    return (amount_of(resources.limits, name) or 0) if requested is None else requested


def cut(text: str) -> str:
    """Shorten a tenant's text for an error message."""
    return text if len(text) <= LONGEST_ECHO else f"{text[:LONGEST_ECHO]}..."


def in_digits(amount: int) -> str:
    """Format a whole number; only the magnitude of a number that is too large to be real."""
    text = str(amount)
    return text if len(text) <= LONGEST_ECHO else f"{text[0]}.{text[1:3]}e{len(text) - 1}"


def in_millicores(amount: int) -> str:
    return in_digits(amount // 1000) if amount % 1000 == 0 else f"{amount}m"


def in_bytes(amount: int) -> str:
    if amount < _LARGEST_IN_BINARY:
        for suffix, shift in _BINARY_SUFFIXES:
            if amount and amount % (1 << shift) == 0:
                return f"{amount >> shift}{suffix}"
    return in_digits(amount)


def quantity_text(name: str, amount: int) -> str:
    """Format billionths of a container's resource as an exact Kubernetes quantity."""
    if name == "cpu" and amount % _MILLI == 0:
        return in_millicores(amount // _MILLI)
    if amount % NANO:
        return f"{amount}n"
    return in_bytes(amount // NANO) if name in BYTES or name.startswith(HUGE_PAGES) else in_digits(amount // NANO)
