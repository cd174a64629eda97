"""Container plan: changes and shortfalls of one container's resources, cached by its requests and limits."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from msgspec import UNSET, Struct, UnsetType

from webhook.core.container_resources.plan import DECIDE_QOS, Amount, RangePlan, is_huge_pages
from webhook.core.container_resources.qos import compute_class
from webhook.core.container_resources.ranges import PodLevel, RequestAndLimit, apply_rule
from webhook.core.container_resources.ratio_shortfalls import find_ratio_shortfalls
from webhook.core.container_resources.shortfalls import Shortfall, find_limit_shortfalls, find_shortfalls
from webhook.core.kubernetes.pod import Amounts, Container, Pod, PodSpec, Resources
from webhook.core.kubernetes.pod_requests import Side, is_sidecar, parse_nano, shorten
from webhook.core.kubernetes.quantity import CACHED_CHARACTERS_MAX
from webhook.core.patch import format_pointer
from webhook.core.policy_fields import QosClass

Value = str | int | float | None
NAME_CHARACTERS_MAX = 63  # characters of a DNS label; the API server has not validated container names yet
_NOTHING = Resources()
_NO_AMOUNTS: Amounts = {}
_NO_POD_LEVEL = PodLevel()
_NO_SHORTFALLS: tuple[Shortfall, ...] = ()
_PLACES: dict[Side, int] = {"requests": 0, "limits": 1}


class ResourceChange(NamedTuple):
    """One amount to write or to remove; `path` is relative to the container. A removal has no text."""

    operation: Literal["add", "replace", "remove"]
    path: str
    name: str
    text: str | UnsetType


class ContainerPlan(Struct, frozen=True, eq=False):
    """The result for one container's requests and limits. Compared by identity, which makes it a cheap key.

    `taken`: its share of each resource that the plan bounds for whole Pods, request and limit alternating.
    `classes`: its QoS class before and after the changes.
    """

    limits: tuple[ResourceChange, ...]
    requests: tuple[ResourceChange, ...]
    shortfalls: tuple[Shortfall, ...]
    taken: tuple[int, ...]
    classes: tuple[QosClass, QosClass]


def plan_containers(pod: Pod, plan: RangePlan) -> Iterator[tuple[str, int, Container, ContainerPlan]]:
    """Yield each container: name of its list, index, container, plan. ValueError: an unreadable quantity."""
    spec, names = pod.spec, plan.names
    level = _NO_POD_LEVEL if spec.resources is None else _find_pod_level(spec.resources, plan)
    ignores = plan.ignores
    nothing = plan.nothing
    for field, containers, whose in (
        (
            ("containers", enumerate(spec.containers or ()), plan),
            ("initContainers", enumerate(spec.init_containers or ()), plan),
        )
        if plan.own_init is None
        else _split_by_plan(spec, plan, plan.own_init)
    ):
        for index, container in containers:
            asked = container.resources or _NOTHING
            requests, limits = asked.requests, asked.limits
            values = (
                *(map(requests.get, names) if requests else nothing),
                *(map(limits.get, names) if limits else nothing),
            )
            is_ignored = ignores and (
                container.name in plan.ignored or container.name.startswith(plan.ignored_prefixes)
            )
            try:
                shape = _find_plan(whose, values, None if is_ignored else level)
            except ValueError as error:
                raise ValueError(f"container {shorten_name(container)}: {error}") from None
            yield field, index, container, shape


def _split_by_plan(
    spec: PodSpec, plan: RangePlan, own_init: RangePlan
) -> Iterator[tuple[str, Iterable[tuple[int, Container]], RangePlan]]:
    """Yield the containers by their plan. Sidecars run beside the containers, and have theirs."""
    yield "containers", enumerate(spec.containers or ()), plan
    for index, container in enumerate(spec.init_containers or ()):
        yield "initContainers", ((index, container),), plan if is_sidecar(container) else own_init


def shorten_name(container: Container) -> str:
    return container.name[:NAME_CHARACTERS_MAX]


def _find_pod_level(own: Resources, plan: RangePlan) -> PodLevel:
    requests, limits = own.requests or _NO_AMOUNTS, own.limits or _NO_AMOUNTS
    limited = frozenset(name for name in plan.names if limits.get(name) is not None)
    return PodLevel(limited.union(name for name in plan.names if requests.get(name) is not None), limited)


class _UncacheableError(Exception):
    """The values are no cache key: texts too long, or numbers (1 and 1.0 would be the same key)."""


def _find_plan(plan: RangePlan, values: tuple[Value, ...], level: PodLevel | None) -> ContainerPlan:
    try:
        return _get_cached_plan(plan, values, level)
    except _UncacheableError:
        pass
    return _compute_plan(plan, values, level)


@lru_cache(maxsize=4096)
def _get_cached_plan(plan: RangePlan, values: tuple[Value, ...], level: PodLevel | None) -> ContainerPlan:
    if not all(value is None or (isinstance(value, str) and len(value) <= CACHED_CHARACTERS_MAX) for value in values):
        raise _UncacheableError
    return _compute_plan(plan, values, level)


def _compute_plan(plan: RangePlan, values: tuple[Value, ...], level: PodLevel | None) -> ContainerPlan:
    """Compute a container's plan. `values`: all requests, then all limits. Without `level` the container is ignored."""
    names = plan.names
    count = len(names)
    asked = {
        name: RequestAndLimit(_read("requests", name, request), _read("limits", name, limit))
        for name, request, limit in zip(names, values[:count], values[count:], strict=True)
    }
    if level is None:
        after, shortfalls = asked, _NO_SHORTFALLS
    else:
        after = _apply_rules(plan, asked, level)
        shortfalls = tuple(_list_shortfalls(plan, asked, after, level))
    return ContainerPlan(
        limits=_list_changes("limits", asked, after),
        requests=_list_changes("requests", asked, after),
        shortfalls=shortfalls,
        taken=tuple(share for bounds in plan.pod for share in _compute_shares(asked[bounds.name])),
        classes=(_classify(asked), _classify(after)),
    )


def _apply_rules(plan: RangePlan, asked: dict[str, RequestAndLimit], level: PodLevel) -> dict[str, RequestAndLimit]:
    after = asked | {rule.name: apply_rule(rule, asked[rule.name], level, clamps=plan.clamps) for rule in plan.rules}
    if all(after[name] == RequestAndLimit() for name in DECIDE_QOS):
        # The API server rejects huge pages without cpu or memory: do not default them for such a Pod.
        after |= {name: own for name, own in asked.items() if own == RequestAndLimit() and is_huge_pages(name)}
    if plan.remove:
        # A limit alone is also the request, which stays.
        after |= {name: RequestAndLimit(after[name].requests or after[name].limits) for name in plan.remove}
    return after


def _list_shortfalls(
    plan: RangePlan, asked: dict[str, RequestAndLimit], after: dict[str, RequestAndLimit], level: PodLevel
) -> Iterator[Shortfall]:
    for rule in plan.rules:
        before, wanted = asked[rule.name], after[rule.name]
        yield from find_shortfalls(rule, before, wanted, level)
        if rule.ratios.most is not None:
            yield from find_ratio_shortfalls(rule, rule.ratios.most, before, wanted, level)
    for name, word in plan.no_limits:
        yield from find_limit_shortfalls(word, name, asked[name].limits)


def _list_changes(
    side: Side, asked: dict[str, RequestAndLimit], after: dict[str, RequestAndLimit]
) -> tuple[ResourceChange, ...]:
    found = []
    place = _PLACES[side]
    for name, own in asked.items():
        before, wanted = own[place], after[name][place]
        if wanted is not before and wanted != before:
            path = format_pointer("resources", side, name)
            if wanted is None:
                found.append(ResourceChange("remove", path, name, UNSET))
            else:
                found.append(ResourceChange("add" if before is None else "replace", path, name, wanted.text))
    return tuple(found)


def _compute_shares(asked: RequestAndLimit) -> tuple[int, int]:
    """Return request and limit as the scheduler counts them; an absent request is the limit."""
    limit = asked.limits.nano if asked.limits else 0
    return asked.requests.nano if asked.requests else limit, limit


def _classify(asked: dict[str, RequestAndLimit]) -> QosClass:
    return compute_class({name: _convert_to_nano(asked[name]) for name in DECIDE_QOS})


def _convert_to_nano(asked: RequestAndLimit) -> tuple[int | None, int | None]:
    request, limit = asked
    return None if request is None else request.nano, None if limit is None else limit.nano


def _read(side: Side, name: str, value: Value) -> Amount | None:
    if value is None:
        return None
    text = str(value).removesuffix(".0")  # the shortest exact text of a number
    try:
        return Amount(parse_nano(text), text)
    except ValueError as error:
        raise ValueError(f"resources.{side}[{name}]: {shorten(text)!r}: {error}") from None
