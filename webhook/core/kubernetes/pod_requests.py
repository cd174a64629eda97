"""Pod requests: resource requests and limits of a whole Pod by the scheduler's formula, in billionths of a unit.

Source: k8s.io/component-helpers/resource (PodRequests, PodLimits), Kubernetes 1.36: init containers run one after the
other; sidecars (init containers with restartPolicy Always) keep running beside everything that starts later.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from webhook.core.kubernetes.pod import Amounts, Container, Pod, Resources
from webhook.core.kubernetes.quantity import CACHED_CHARACTERS_MAX, parse_quantity

NANO = 10**9
BYTES = frozenset({"memory", "ephemeral-storage"})
HUGE_PAGES = "hugepages-"
ECHO_CHARACTERS_MAX = 40  # characters of a tenant's text that an error repeats
_MILLI = NANO // 1000
_BINARY_BYTES_MAX = 1 << 80
_BINARY_SUFFIXES = (("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10))

Side = Literal["requests", "limits"]


def parse_nano(text: str) -> int:
    """Return a quantity in billionths, rounded up: Kubernetes stores nothing finer."""
    return _parse_short_nano(text) if len(text) <= CACHED_CHARACTERS_MAX else _parse_short_nano.__wrapped__(text)


@lru_cache(maxsize=4096)
def _parse_short_nano(text: str) -> int:
    value = parse_quantity(text) * NANO
    return -(-value.numerator // value.denominator)


def read_amount(amounts: Amounts | None, name: str) -> int | None:
    """Return one amount, None if it is absent. ValueError: it is not a quantity."""
    found = amounts.get(name) if amounts else None
    if found is None:
        return None
    try:
        return parse_nano(str(found))
    except ValueError as error:
        raise ValueError(f"{name}: {shorten(str(found))!r}: {error}") from None


def compute_total(pod: Pod, side: Side, name: str) -> int:
    """Return the whole Pod's request or limit of one resource. ValueError: an invalid quantity."""
    return compute_pod_total(pod, side, name, compute_containers_total(pod, side, name))


def compute_containers_total(pod: Pod, side: Side, name: str) -> int:
    """Return the maximum that the containers use at one time."""
    running = [_read_share(container.resources, side, name) for container in pod.spec.containers or ()]
    starting = [
        (_read_share(container.resources, side, name), is_sidecar(container))
        for container in pod.spec.init_containers or ()
    ]
    return combine_containers(running, starting)


def combine_containers(running: Iterable[int], starting: Iterable[tuple[int, bool]]) -> int:
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


def compute_pod_total(pod: Pod, side: Side, name: str, containers: int) -> int:
    """Return a Pod's total from that of its containers: Pod-level resources take precedence, and overhead is added."""
    taken = containers
    if pod.spec.resources is not None:
        # An absent request is the sum of the containers'; if none of them names the resource, it is the limit.
        own = read_amount(getattr(pod.spec.resources, side), name)
        if own is not None:
            taken = own
        elif not containers and not _is_named(pod, name):
            taken = read_amount(pod.spec.resources.limits, name) or 0
    overhead = read_amount(pod.spec.overhead, name) or 0
    # The scheduler adds overhead to a limit only where there is one: 0 means "no limit".
    return taken + overhead if side == "requests" or taken else taken


def _is_named(pod: Pod, name: str) -> bool:
    """Return whether any container names a resource, even with 0."""
    return any(
        name in (amounts or ())
        for container in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
        if container.resources is not None
        for amounts in (container.resources.requests, container.resources.limits)
    )


def is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _read_share(resources: Resources | None, side: Side, name: str) -> int:
    """Return one container's share; an absent request is its limit, as the API server defaults it."""
    if resources is None:
        return 0
    if side == "limits":
        return read_amount(resources.limits, name) or 0
    requested = read_amount(resources.requests, name)
    return (read_amount(resources.limits, name) or 0) if requested is None else requested


def shorten(text: str) -> str:
    """Shorten a tenant's text for an error message."""
    return text if len(text) <= ECHO_CHARACTERS_MAX else f"{text[:ECHO_CHARACTERS_MAX]}..."


def format_digits(amount: int) -> str:
    """Format a whole number; only the magnitude of a number that is too large to be real."""
    text = str(amount)
    return text if len(text) <= ECHO_CHARACTERS_MAX else f"{text[0]}.{text[1:3]}e{len(text) - 1}"


def format_millicores(amount: int) -> str:
    return format_digits(amount // 1000) if amount % 1000 == 0 else f"{amount}m"


def format_bytes(amount: int) -> str:
    if amount < _BINARY_BYTES_MAX:
        for suffix, shift in _BINARY_SUFFIXES:
            if amount and amount % (1 << shift) == 0:
                return f"{amount >> shift}{suffix}"
    return format_digits(amount)


def format_quantity(name: str, amount: int) -> str:
    """Format billionths of a container's resource as an exact Kubernetes quantity."""
    if name == "cpu" and amount % _MILLI == 0:
        return format_millicores(amount // _MILLI)
    if amount % NANO:
        return f"{amount}n"
    return (
        format_bytes(amount // NANO) if name in BYTES or name.startswith(HUGE_PAGES) else format_digits(amount // NANO)
    )
