"""Rules of `guaranteed`: a pool that has the windows and resources, and room for all guarantees at once."""

from collections.abc import Iterator, Mapping

from webhook.core.document.rules.services import read_name
from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem, join_words
from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.core.policy_fields import Mode, Per
from webhook.core.quota import canonicalize, convert_amount
from webhook.core.quota.pod_cost import format_amount

GUARANTEES_MAX = 50
"""Services with a guarantee in one pool: each Pod of a member may have to look at all of them."""

_Limits = dict[tuple[int, str], int]
"""Amounts as counted, by window in microseconds and canonical resource."""


def guarantees_fit_their_pool(document: DocumentPart) -> Iterator[Problem]:
    """`services[].guaranteed`: windows and resources of its pool, in all at most `hard` of the pool.

    Refuse it without a pool, other windows and resources, and more than the pool has, or than the service may use.
    """
    pools = {read_name(pool): pool for pool in document.select("pools", "*")}
    sums: dict[str, _Limits] = {}
    counts: dict[str, int] = {}
    for service in document.select("services", "*"):
        yield from stop_at_invalid(_check_service(service, pools, sums, counts))


def _check_service(
    service: DocumentPart, pools: Mapping[str, DocumentPart], sums: dict[str, _Limits], counts: dict[str, int]
) -> Iterator[Problem]:
    guaranteed, chosen = service.get("guaranteed"), service.get("pool")
    if guaranteed is None:
        return
    if chosen is None:
        yield guaranteed.report_field("the service is in no pool", "write the pool that it is a part of")
        return
    name = chosen.read(str)
    if name not in pools:
        return  # reported by pools_exist
    counts[name] = counts.get(name, 0) + 1
    if counts[name] == GUARANTEES_MAX + 1:
        reason = f"more than {GUARANTEES_MAX} services of pool {name} have a guarantee"
        yield guaranteed.report_field(reason, "guarantee less, or make several pools")
    limits, taken = _list_limits(pools[name].get("windows")), sums.setdefault(name, {})
    own = _list_limits(service.get("quota", "windows")) if _is_one_account(service) else {}
    for window in guaranteed.select("windows", "*"):
        yield from stop_at_invalid(_check_window(window, name, limits, own, taken))


def _check_window(window: DocumentPart, pool: str, limits: _Limits, own: _Limits, taken: _Limits) -> Iterator[Problem]:
    length, hard = window.get("window"), window.get("hard")
    if length is None or hard is None:
        return
    span_us = length.read(Duration).us
    if not any(span == span_us for span, _ in limits):
        yield length.report(f"pool {pool} has no such window", "write one of its windows")
        return
    for resource, part in hard.fields().items():
        name, amount = canonicalize(resource), convert_amount(resource, part.read(Quantity).value)
        key = span_us, name
        if key not in limits:
            has = join_words(sorted(counted for span, counted in limits if span == span_us))
            yield part.report_field(f"pool {pool} does not limit it in this window", f"write one of {has}")
            continue
        before = taken.get(key, 0)
        taken[key] = before + amount
        if before <= limits[key] < before + amount:
            whole, all_of_them = format_amount(name, limits[key]), format_amount(name, before + amount)
            reason = f"pool {pool} has {whole}, and with this its services are guaranteed {all_of_them}"
            yield part.report(reason, "guarantee less, or raise the pool's limit")
        bounds = [most for (span, counted), most in own.items() if counted == name and span >= span_us]
        if bounds and min(bounds) < amount:
            reason = f"above {format_amount(name, min(bounds))}, the service's own limit"
            yield part.report(reason, "guarantee less, or raise its own limit")


def _list_limits(windows: DocumentPart | None) -> _Limits:
    found: _Limits = {}
    for window in () if windows is None else windows.items():
        length, hard = window.get("window"), window.get("hard")
        if length is not None and hard is not None:
            for resource, part in hard.fields().items():
                amount = convert_amount(resource, part.read(Quantity).value)
                found[length.read(Duration).us, canonicalize(resource)] = amount
    return found


def _is_one_account(service: DocumentPart) -> bool:
    per = service.get("quota", "per")
    return per is None or per.read(str) == Per.SERVICE


def guarantees_are_kept(document: DocumentPart) -> Iterator[Problem]:
    """`modes.quota` of a pool's members: warn about another than Enforce where some member has a guarantee."""
    members: dict[str, list[DocumentPart]] = {}
    guaranteed = set[str]()
    for service in document.select("services", "*"):
        chosen = service.get("pool")
        if chosen is not None:
            members.setdefault(chosen.read(str), []).append(service)
            guaranteed |= {chosen.read(str)} if service.get("guaranteed") is not None else set()
    for pool in guaranteed:
        for service in members[pool]:
            yield from stop_at_invalid(_check_mode(service, pool))


def _check_mode(service: DocumentPart, pool: str) -> Iterator[Problem]:
    mode = service.get("modes", "quota")
    if mode is not None and mode.read(Mode) is not Mode.ENFORCE:
        reason = f"its Pods may take what pool {pool} guarantees to other services"
        yield mode.report(reason, "write Enforce, or take it out of the pool meanwhile")
