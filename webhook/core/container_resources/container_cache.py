"""What a plan makes of one container, remembered by what the container asks: most containers ask the same."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from msgspec import Struct

from webhook.core.container_resources.bounds import PodLevel, RequestAndLimit, settled
from webhook.core.container_resources.kinds import DECIDE_QOS, is_huge_pages
from webhook.core.container_resources.plan import Amount, RangePlan
from webhook.core.container_resources.qos import QosClass, class_of
from webhook.core.container_resources.shortfalls import Shortfall, shortfalls
from webhook.core.kubernetes.pod import Amounts, Container, Pod, Resources
from webhook.core.kubernetes.pod_requests import Side, cut, nano
from webhook.core.kubernetes.quantity import CACHED
from webhook.core.patch import pointer

Value = str | int | float | None
LONGEST_NAME = 63  # characters: a container's name is a DNS label, which nobody has checked yet
_NOTHING = Resources()
_NO_AMOUNTS: Amounts = {}
_NO_POD_LEVEL = PodLevel()


class ResourceChange(NamedTuple):
    """One amount to write; `path` is below the container."""

    operation: Literal["add", "replace"]
    path: str
    name: str
    text: str


class ContainerPlan(Struct, frozen=True, eq=False):
    """What follows from what one container asks. Compared by identity, which makes it a cheap key.

    `taken`: its share of each resource that the plan bounds for whole Pods, requests and limits in turn.
    `classes`: what it would make of its Pod's QoS class, before and after the changes.
    """

    limits: tuple[ResourceChange, ...]
    requests: tuple[ResourceChange, ...]
    shortfalls: tuple[Shortfall, ...]
    taken: tuple[int, ...]
    classes: tuple[QosClass, QosClass]


def shapes(pod: Pod, plan: RangePlan) -> Iterator[tuple[str, int, Container, ContainerPlan]]:
    """Yield each container: its list, its place there, itself, its shape. ValueError: an unreadable quantity."""
    spec, names = pod.spec, plan.names
    level = _pod_level(pod, plan)
    ignores = plan.ignored or plan.ignored_prefixes
    nothing = (None,) * len(names)
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers or ()):
            asked = container.resources or _NOTHING
            requests, limits = asked.requests, asked.limits
            values = (
                *(map(requests.get, names) if requests else nothing),
                *(map(limits.get, names) if limits else nothing),
            )
            left_alone = ignores and (
                container.name in plan.ignored or container.name.startswith(plan.ignored_prefixes)
            )
            try:
                shape = _shape(plan, values, None if left_alone else level)
            except ValueError as error:
                raise ValueError(f"container {shown_name(container)}: {error}") from None
            yield field, index, container, shape


def shown_name(container: Container) -> str:
    return container.name[:LONGEST_NAME]


def _pod_level(pod: Pod, plan: RangePlan) -> PodLevel:
    own = pod.spec.resources
    if own is None:
        return _NO_POD_LEVEL
    requests, limits = own.requests or _NO_AMOUNTS, own.limits or _NO_AMOUNTS
    limited = frozenset(name for name in plan.names if limits.get(name) is not None)
    return PodLevel(limited.union(name for name in plan.names if requests.get(name) is not None), limited)


class _NotKeptError(Exception):
    """These values are no key of a cache: texts too long to be kept, or numbers, of which 1 and 1.0 are one key."""


def _shape(plan: RangePlan, values: tuple[Value, ...], level: PodLevel | None) -> ContainerPlan:
    try:
        return _known(plan, values, level)
    except _NotKeptError:
        pass
    return _worked_out(plan, values, level)


@lru_cache(maxsize=4096)
def _known(plan: RangePlan, values: tuple[Value, ...], level: PodLevel | None) -> ContainerPlan:
    if not all(value is None or (isinstance(value, str) and len(value) <= CACHED) for value in values):
        raise _NotKeptError
    return _worked_out(plan, values, level)


def _worked_out(plan: RangePlan, values: tuple[Value, ...], level: PodLevel | None) -> ContainerPlan:
    """Work a container out: `values` are all its requests, then all its limits. Without a level it is left alone."""
    requests, limits = values[: len(plan.names)], values[len(plan.names) :]
    asked = {
        name: RequestAndLimit(_read("requests", name, request), _read("limits", name, limit))
        for name, request, limit in zip(plan.names, requests, limits, strict=True)
    }
    after = asked if level is None else _settled(plan, asked, level)
    return ContainerPlan(
        limits=_changes("limits", asked, after),
        requests=_changes("requests", asked, after),
        shortfalls=() if level is None else tuple(shortfalls(plan, asked, after, level)),
        taken=tuple(share for bounds in plan.pod for share in _shares(asked[bounds.name])),
        classes=(_class(asked), _class(after)),
    )


def _settled(plan: RangePlan, asked: dict[str, RequestAndLimit], level: PodLevel) -> dict[str, RequestAndLimit]:
    after = asked | {rule.name: settled(rule, asked[rule.name], level, clamps=plan.clamps) for rule in plan.rules}
    if all(after[name] == RequestAndLimit() for name in DECIDE_QOS):
        # "HugePages require cpu or memory", says the API server: a default must not make a Pod that it refuses.
        after |= {name: own for name, own in asked.items() if own == RequestAndLimit() and is_huge_pages(name)}
    return after


def _changes(
    side: Side, asked: dict[str, RequestAndLimit], after: dict[str, RequestAndLimit]
) -> tuple[ResourceChange, ...]:
    found = []
    for name, own in asked.items():
        before, wanted = getattr(own, side), getattr(after[name], side)
        if wanted is not None and wanted != before:
            path = pointer("resources", side, name)
            found.append(ResourceChange("add" if before is None else "replace", path, name, wanted.text))
    return tuple(found)


def _shares(asked: RequestAndLimit) -> tuple[int, int]:
    """Return request and limit as the scheduler counts them; a request that is absent is its limit."""
    limit = asked.limits.nano if asked.limits else 0
    return asked.requests.nano if asked.requests else limit, limit


def _class(asked: dict[str, RequestAndLimit]) -> QosClass:
    return class_of({name: _in_nano(asked[name]) for name in DECIDE_QOS})


def _in_nano(asked: RequestAndLimit) -> tuple[int | None, int | None]:
    request, limit = asked
    return None if request is None else request.nano, None if limit is None else limit.nano


def _read(side: Side, name: str, value: Value) -> Amount | None:
    if value is None:
        return None
    text = str(value).removesuffix(".0")  # of a number, the shortest text that means exactly it
    try:
        return Amount(nano(text), text)
    except ValueError as error:
        raise ValueError(f"resources.{side}[{name}]: {cut(text)!r}: {error}") from None
