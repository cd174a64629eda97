"""Rules of `pools`: they exist, agree with their members, and their limits can be reached."""

from collections.abc import Iterator

from webhook.core.document.rules.services import read_items, read_name
from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem, suggest
from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.core.policy.model import Modes
from webhook.core.policy_fields import Mode, Per, StandingQuota
from webhook.core.quota import StandingPlan, canonicalize, convert_amount
from webhook.core.quota.pod_cost import format_amount


def pools_exist(document: DocumentPart) -> Iterator[Problem]:
    """`services[].pool`: the name of one of `pools`. Refuse another name."""
    defined = document.get("pools")
    pools = [] if defined is None else [read_name(part) for part in read_items(defined)]
    for chosen in document.select("services", "*", "pool"):
        if chosen.read(str) not in pools:
            yield chosen.report("no such pool", suggest(chosen.read(str), pools, "pools has"))


def pools_limit_something(document: DocumentPart) -> Iterator[Problem]:
    """`pools[]`: `windows` or `standing`. Refuse a pool that limits nothing."""
    for pool in document.select("pools", "*"):
        yield from stop_at_invalid(_check_limits_something(pool))


def _check_limits_something(pool: DocumentPart) -> Iterator[Problem]:
    windows = pool.get("windows")
    if pool.get("standing") is None and (windows is None or windows.is_empty):
        remedy = "add windows or standing, or remove the pool"
        if windows is None:
            yield pool.report_missing("windows", "the pool limits nothing", remedy)
        else:
            yield windows.report("the pool limits nothing", remedy)


def pools_agree_with_their_members(document: DocumentPart) -> Iterator[Problem]:
    """`quota.scope`, `quota.whenExceeded` of a pool's member: those of the pool.

    Refuse another value, and an absent one whose default differs.
    """
    pools = {name.read(str): pool for pool in document.select("pools", "*") for name in pool.select("name")}
    for service in document.select("services", "*"):
        for field, default in (("scope", "Cluster"), ("whenExceeded", "Deny")):
            yield from stop_at_invalid(_check_agreement(pools, service, field, default))


def _check_agreement(
    pools: dict[str, DocumentPart], service: DocumentPart, field: str, default: str
) -> Iterator[Problem]:
    chosen, quota = service.get("pool"), service.get("quota")
    pool = pools.get(chosen.read(str)) if chosen is not None else None
    if pool is None or quota is None:
        return
    ours, theirs = quota.get(field), pool.get(field)
    mine = default if ours is None else ours.read(str)
    shared = default if theirs is None else theirs.read(str)
    if mine != shared:
        reason = f"pool {read_name(pool)} has {field} {shared}, and its members must have the same"
        remedy = f"write {field}: {shared} here, or {field}: {mine} in the pool"
        yield quota.report_missing(field, reason, remedy) if ours is None else ours.report(reason, remedy)


def pools_have_members(document: DocumentPart) -> Iterator[Problem]:
    """`pools[].name`: warn about a pool that no service names."""
    used = {chosen.read(str) for chosen in document.select("services", "*", "pool")}
    for name in document.select("pools", "*", "name"):
        if name.read(str) not in used:
            yield name.report("no service is in this pool", f"write pool: {name.read(str)} in a service, or remove it")


_Bounds = dict[str, list[tuple[int, int]]]
"""Upper bounds of a service by canonical resource: (window in microseconds, amount as counted)."""


def pools_can_bind(document: DocumentPart) -> Iterator[Problem]:
    """`pools[].windows[].hard`, `standing.hard`: warn about a limit above the sum of the members' own limits."""
    members: dict[str, list[_Bounds]] = {}
    known: dict[int, _Bounds] = {}  # services may share their windows by `defaults`
    for service in document.select("services", "*"):
        chosen, windows = service.get("pool"), service.get("quota", "windows")
        if chosen is None:
            continue
        bounds: _Bounds = {}
        if windows is not None and _is_bounded(service):
            key = id(windows.node.value)
            bounds = known[key] if key in known else known.setdefault(key, _list_bounds(windows))
        live = service.get("quota", "standing")
        if live is not None and _is_bounded(service):
            bounds = {**bounds, **_list_live_bounds(live)}
        members.setdefault(chosen.read(str), []).append(bounds)
    for pool in document.select("pools", "*"):
        shares = members.get(read_name(pool), [])
        for window in pool.select("windows", "*") if shares else ():
            yield from _check_window_binds(window, shares)
        for hard in pool.select("standing", "hard") if shares else ():
            yield from stop_at_invalid(_check_live_binds(hard, shares))


def _is_bounded(service: DocumentPart) -> bool:
    """Return whether the service's windows bound its use: enforced, at all times, with one set of counters."""
    if service.get("quota", "schedules") is not None:
        return False
    per, modes = service.get("quota", "per"), service.get("modes")
    enforced = (Modes() if modes is None else modes.read(Modes)).quota is Mode.ENFORCE
    return enforced and (per is None or per.node.value == Per.SERVICE)


def _list_bounds(windows: DocumentPart) -> _Bounds:
    bounds: _Bounds = {}
    for window in windows.items():
        length, hard = window.get("window"), window.get("hard")
        if length is not None and hard is not None:
            span_us = length.read(Duration).us
            for resource, part in hard.fields().items():
                most = convert_amount(resource, part.read(Quantity).value)
                bounds.setdefault(canonicalize(resource), []).append((span_us, most))
    return bounds


_LIVE = "live "
"""Begins the names of bounds on live Pods; no resource has a space in it."""


def _list_live_bounds(standing: DocumentPart) -> _Bounds:
    """Return how much of each resource the live Pods of a service may ever have, with surge."""
    plan = StandingPlan.from_standing(standing.read(StandingQuota))
    pairs = zip(plan.limits, plan.surge, strict=True)
    return {f"{_LIVE}{limit.counts}": [(0, limit.hard + surge)] for limit, surge in pairs}


def _check_live_binds(hard: DocumentPart, shares: list[_Bounds]) -> Iterator[Problem]:
    for resource, part in hard.fields().items():
        yield from _check_binds(
            resource, part, [shared.get(f"{_LIVE}{canonicalize(resource)}", []) for shared in shares]
        )


def _check_window_binds(window: DocumentPart, shares: list[_Bounds]) -> Iterator[Problem]:
    length, hard = window.get("window"), window.get("hard")
    if length is None or hard is None:
        return
    span_us = length.read(Duration).us
    for resource, part in hard.fields().items():
        found = [shared.get(canonicalize(resource), ()) for shared in shares]
        # Only a window of at least this length bounds it: a shorter window admits its amount several times.
        yield from _check_binds(resource, part, [[own for own in bounds if own[0] >= span_us] for bounds in found])


def _check_binds(resource: str, part: DocumentPart, bounds: list[list[tuple[int, int]]]) -> Iterator[Problem]:
    """Check a limit of a pool against the bounds of each member."""
    if not all(bounds):
        return
    name, total = canonicalize(resource), sum(min(most for _, most in own) for own in bounds)
    if total <= convert_amount(name, part.read(Quantity).value):
        reason = f"never reached: the limits of its services allow {format_amount(name, total)} in all"
        yield part.report(reason, "lower it, or raise theirs")
