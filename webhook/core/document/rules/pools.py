"""Rules of `pools`: they exist, agree with their members, and their limits can be reached."""

from collections.abc import Iterator

from webhook.core.document.rules.services import read_items, read_name
from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem, suggest
from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.core.policy.model import Modes
from webhook.core.policy_fields import Mode, Per
from webhook.core.quota import canonicalize, convert_amount
from webhook.core.quota.pod_cost import format_amount


def pools_exist(document: DocumentPart) -> Iterator[Problem]:
    """`services[].pool`: the name of one of `pools`. Refuse another name."""
    defined = document.get("pools")
    pools = [] if defined is None else [read_name(part) for part in read_items(defined)]
    for chosen in document.select("services", "*", "pool"):
        if chosen.read(str) not in pools:
            yield chosen.report("no such pool", suggest(chosen.read(str), pools, "pools has"))


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
    """`pools[].windows[].hard`: warn about a limit above the sum of the members' own limits."""
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
        members.setdefault(chosen.read(str), []).append(bounds)
    for pool in document.select("pools", "*"):
        shares = members.get(read_name(pool), [])
        for window in pool.select("windows", "*") if shares else ():
            yield from _check_binds(window, shares)


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


def _check_binds(window: DocumentPart, shares: list[_Bounds]) -> Iterator[Problem]:
    length, hard = window.get("window"), window.get("hard")
    if length is None or hard is None:
        return
    span_us = length.read(Duration).us
    for resource, part in hard.fields().items():
        name, total = canonicalize(resource), 0
        for bounds in shares:
            # Only a window of at least this length bounds it: a shorter window admits its amount several times.
            own = [most for own_us, most in bounds.get(name, ()) if own_us >= span_us]
            if not own:
                break
            total += min(own)
        else:
            if total <= convert_amount(name, part.read(Quantity).value):
                reason = f"never reached: the limits of its services allow {format_amount(name, total)} in all"
                yield part.report(reason, "lower it, or raise theirs")
