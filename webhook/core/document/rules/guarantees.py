"""Rules of `guaranteed`: a pool that has the limits, and room for all guarantees at once."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from webhook.core.document.rules.services import read_name
from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem, join_words
from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.core.policy_fields import Mode, Per
from webhook.core.quota import canonicalize, convert_amount
from webhook.core.quota.pod_cost import format_amount

GUARANTEES_MAX = 50
"""Services with a guarantee in one pool: each Pod of a member may have to look at all of them."""

_STANDING = 0
"""Stands for the length of a window where live Pods are limited."""
_Limits = dict[tuple[int, str], int]
"""Amounts as counted, by window in microseconds (0: of live Pods) and canonical resource."""


def guarantees_fit_their_pool(document: DocumentPart) -> Iterator[Problem]:
    """`services[].guaranteed`: `windows`, `standing` and resources of its pool, in all at most `hard` of the pool.

    Refuse it without a pool, or without any limit; other windows and resources, `standing` if the pool has none; more
    than the pool has, or than the service may use.
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
    windows, standing = guaranteed.get("windows"), guaranteed.get("standing")
    if standing is None and (windows is None or windows.is_empty):
        yield guaranteed.report_field("guarantees nothing", "add windows or standing, or remove it")
    quota = service.get("quota") if _is_one_account(service) else None
    figures = _Figures(name, _list_limits(pools[name]), _list_limits(quota), sums.setdefault(name, {}))
    for window in () if windows is None else windows.items():
        yield from stop_at_invalid(_check_window(window, figures))
    for hard in guaranteed.select("standing", "hard"):
        yield from stop_at_invalid(_check_standing(hard, figures))


class _Figures(NamedTuple):
    """The limits of a pool and of one of its services, and what of the pool's is taken by guarantees so far."""

    pool: str
    limits: _Limits
    own: _Limits
    taken: _Limits


def _check_window(window: DocumentPart, figures: _Figures) -> Iterator[Problem]:
    length, hard = window.get("window"), window.get("hard")
    if length is None or hard is None:
        return
    span_us = length.read(Duration).us
    if not any(span == span_us for span, _ in figures.limits):
        yield length.report(f"pool {figures.pool} has no such window", "write one of its windows")
        return
    yield from _check_amounts(hard, span_us, figures, "in this window")


def _check_standing(hard: DocumentPart, figures: _Figures) -> Iterator[Problem]:
    if not any(span == _STANDING for span, _ in figures.limits):
        reason = f"pool {figures.pool} has no limit on live Pods"
        yield hard.report(reason, "add standing to the pool, or remove this")
        return
    yield from _check_amounts(hard, _STANDING, figures, "for live Pods")


def _check_amounts(hard: DocumentPart, span_us: int, figures: _Figures, where: str) -> Iterator[Problem]:
    pool, limits, own, taken = figures
    for resource, part in hard.fields().items():
        name, amount = canonicalize(resource), convert_amount(resource, part.read(Quantity).value)
        key = span_us, name
        if key not in limits:
            has = join_words(sorted(counted for span, counted in limits if span == span_us))
            yield part.report_field(f"pool {pool} does not limit it {where}", f"write one of {has}")
            continue
        before = taken.get(key, 0)
        taken[key] = before + amount
        if before <= limits[key] < before + amount:
            whole, all_of_them = format_amount(name, limits[key]), format_amount(name, before + amount)
            reason = f"pool {pool} has {whole}, and with this its services are guaranteed {all_of_them}"
            yield part.report(reason, "guarantee less, or raise the pool's limit")
        bounds = [most for (span, counted), most in own.items() if counted == name and _bounds(span, span_us)]
        if bounds and min(bounds) < amount:
            reason = f"above {format_amount(name, min(bounds))}, the service's own limit"
            yield part.report(reason, "guarantee less, or raise its own limit")


def _bounds(own_us: int, span_us: int) -> bool:
    """Return whether a limit of the service bounds its use of one of the pool: of a window at least as long."""
    return own_us == _STANDING if span_us == _STANDING else own_us >= span_us


def _list_limits(holder: DocumentPart | None) -> _Limits:
    """Return the limits of a pool or a quota."""
    found: _Limits = {}
    for window in holder.select("windows", "*") if holder is not None else ():
        length, hard = window.get("window"), window.get("hard")
        if length is not None and hard is not None:
            found |= _list_amounts(length.read(Duration).us, hard)
    for hard in holder.select("standing", "hard") if holder is not None else ():
        found |= _list_amounts(_STANDING, hard)
    return found


def _list_amounts(span_us: int, hard: DocumentPart) -> _Limits:
    return {
        (span_us, canonicalize(resource)): convert_amount(resource, part.read(Quantity).value)
        for resource, part in hard.fields().items()
    }


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
