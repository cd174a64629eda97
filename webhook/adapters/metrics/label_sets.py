"""Series at 0: the label sets that can occur for a policy's services, and their lines, made once for a policy.

`increase()` starts from the first sample of a series, so it misses an event that creates its series. Not included:
manual changes (forced breakers, modes of overrides) and label values that only callers determine.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from enum import Flag, auto

from webhook.adapters.metrics import families
from webhook.adapters.metrics.family import Family
from webhook.adapters.metrics.variant_breakers import list_variant_series
from webhook.core.admission.decision import Half, Verdict
from webhook.core.admission.exemptions import EXEMPTIONS
from webhook.core.admission.validation import find_own_mode
from webhook.core.breaker import State
from webhook.core.breaker.outcome_types import Settlement
from webhook.core.findings import Code
from webhook.core.pods.start_outcome import StartResult
from webhook.core.policy.model import FailureMode, Policy, Pool, Service, Unmatched
from webhook.core.policy_fields import Breaker, Mode, OnOverload, OutcomeSource, WhenOpen, WhenStoreUnavailable
from webhook.core.quota import STANDING, Holder, QueuePlan
from webhook.core.scheduling.hot_node_filters import list_rule_names

Labels = tuple[str, ...]
"""Label values, in the family's order."""

_HELP = b"# HELP "
_EOF = b"# EOF\n"
"""End of an OpenMetrics text."""


class ZeroLines:
    """Lines of counters by family and label set."""

    def __init__(self, series: Mapping[Family, Iterable[Labels]]) -> None:
        self._lines = {family: {labels: _line(family, labels) for labels in of} for family, of in series.items()}

    def add_to(self, text: bytes, recorded: Mapping[Family, Container[Labels]]) -> bytes:
        """Return a text with the lines of the series that are not recorded, each in its family's group."""
        is_open = text.endswith(_EOF)
        added = {}
        for family, lines in self._lines.items():
            name = family.name.removesuffix("_total") if is_open else family.name
            of_family = recorded.get(family, ())
            unrecorded = "".join(line for labels, line in lines.items() if labels not in of_family)
            added[name.encode()] = f"{name} {family.help}\n# TYPE {name} counter\n".encode(), unrecorded.encode()
        return _HELP.join(_groups(text.removesuffix(_EOF), added)) + (_EOF if is_open else b"")


def _groups(text: bytes, added: dict[bytes, tuple[bytes, bytes]]) -> Iterator[bytes]:
    first, *groups = text.split(_HELP)
    yield first
    for group in groups:
        _, lines = added.pop(group[: group.index(b" ")], (b"", b""))
        yield group + lines
    for header, lines in added.values():
        if lines:
            yield header + lines


def _line(family: Family, values: Labels) -> str:
    pairs = ",".join(f'{name}="{_escape(text)}"' for name, text in sorted(zip(family.labels, values, strict=True)))
    return f"{family.name}{{{pairs}}} 0.0\n" if pairs else f"{family.name} 0.0\n"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


Series = Iterator[tuple[Family, Labels]]

_CONCERNS = ("placement", "resources", "quota", "breaker")
_TRIED = frozenset({Mode.WARN, Mode.AUDIT})
_CODES: Mapping[str, tuple[Code, ...]] = {
    "placement": (Code.PLACEMENT_CONFLICT, Code.PLACEMENT_UNFULFILLED),
    "resources": (Code.RESOURCES_OUTSIDE, Code.RESOURCES_UNFULFILLED),
    "quota": (Code.QUOTA_EXCEEDED,),
    "breaker": (Code.BREAKER_OPEN, Code.BREAKER_PROBING),
}
_TEMPLATE_CONCERNS = ("placement", "resources")
_UNMATCHED: Mapping[Unmatched, Mode] = {Unmatched.WARN: Mode.WARN, Unmatched.DENY: Mode.ENFORCE}


class ProcessRole(Flag):
    """Roles of a process, which determine what it counts."""

    NONE = 0
    REVIEWS = auto()
    SHARES_STORE = auto()
    """It uses a shared store, which may be unavailable."""
    RECONCILES = auto()
    """It watches Pods in the cluster."""
    SCHEDULES = auto()
    """It answers kube-scheduler."""


def list_zeros(policy: Policy, duties: ProcessRole) -> Mapping[Family, Collection[Labels]]:
    """Return the series that a process with `duties` exports from the start, by family, each within its bound."""
    found: dict[Family, dict[Labels, None]] = {}
    for family, labels in _list_series(policy, duties):
        found.setdefault(family, {})[labels] = None
    return {family: of for family, of in found.items() if len(of) <= family.series_max}


def _list_series(policy: Policy, duties: ProcessRole) -> Series:
    pools = {pool.name: pool for pool in policy.pools}
    if ProcessRole.REVIEWS in duties:
        yield from _list_unowned_series(policy)
    if ProcessRole.RECONCILES in duties:
        yield families.LABELS_IGNORED, ()
    for service in policy.services:
        breaker = _is_in_force(service, "breaker") and service.breaker
        if ProcessRole.REVIEWS in duties:
            yield from _list_review_series(service)
            if service.variants:
                yield families.SLOT_CLAIMS, (service.name,)
                yield from ((families.SLOT_LISTS, (service.name, reason)) for reason in families.LIST_REASONS)
            yield from _list_quota_series(service, pools.get(service.pool or ""))
            if ProcessRole.SHARES_STORE in duties:
                yield from _list_outage_series(service)
        if ProcessRole.RECONCILES in duties:
            yield from _list_controller_series(service, pools.get(service.pool or ""), has_breaker=bool(breaker))
        if ProcessRole.SCHEDULES in duties:
            yield from _list_refused_nodes(service)
        yield from list_variant_series(service)
        if breaker:
            yield from _list_breaker_series(service, breaker, duties, is_guarded=policy.breaker_guard is not None)


def _list_controller_series(service: Service, pool: Pool | None, *, has_breaker: bool) -> Series:
    """Yield the series of a controller."""
    name = service.name
    yield from ((families.REFUNDS, (name, cause)) for cause in families.REFUND_CAUSES)
    found_later = families.REFUNDS_UNPROVEN, families.CHARGED_AFTERWARDS, families.RAISED_AFTERWARDS
    yield from ((family, (name,)) for family in (*found_later, families.UNJUDGED_PODS))
    if service.placement is not None and service.placement.shares is not None and _is_in_force(service, "placement"):
        variants = service.placement.shares.variants
        yield from ((families.VARIANT_EVICTIONS, (name, variant.name)) for variant in variants)
    if _is_in_force(service, "quota") or has_breaker:
        yield from ((families.CONTROLLERS_WOKEN, (name, result)) for result in families.WAKE_RESULTS)
    if QueuePlan.from_service(service, pool, 0) is not None:
        queued = families.QUEUE_RELEASED, families.QUEUE_EXPIRED
        yield from ((family, (name,)) for family in queued)


def _list_refused_nodes(service: Service) -> Series:
    if _is_in_force(service, "scheduling") and service.scheduling is not None:
        yield from (
            (families.EXTENDER_REFUSED_NODES, (service.name, rule)) for rule in list_rule_names(service.scheduling)
        )


def _is_in_force(service: Service, concern: str) -> bool:
    stanza = service.quota or service.pool if concern == "quota" else getattr(service, concern)
    return stanza is not None and getattr(service.modes, concern) is not Mode.DISABLED


def _list_unowned_series(policy: Policy) -> Series:
    for half in Half:
        for verdict in (Verdict.UNMATCHED, Verdict.EXEMPT):
            yield families.REVIEWS, (half, "", "CREATE", verdict)
    yield from ((families.EXEMPT, (exemption,)) for exemption in EXEMPTIONS)
    mode = _UNMATCHED.get(policy.unmatched)
    if mode is not None:
        yield families.FINDINGS, ("", Code.UNMATCHED, mode)
    if mode is Mode.WARN:
        yield families.WOULD_DENY, ("", "unmatched")


def _list_review_series(service: Service) -> Series:
    """Yield the series of decisions about fields of a service's Pods and templates."""
    name, modes = service.name, service.modes
    yield families.REVIEWS, (Half.MUTATE, name, "CREATE", Verdict.ADMIT)
    yield families.REVIEWS, (Half.VALIDATE, name, "CREATE", Verdict.ADMIT)
    yield families.REVIEWS, (Half.VALIDATE, name, "CREATE", Verdict.DENY)
    if modes.is_all_disabled():
        return
    own = find_own_mode(service)
    missing = Mode.WARN if own is Mode.ENFORCE and service.failure_mode is FailureMode.OPEN else own
    yield families.FINDINGS, (name, Code.MUTATION_MISSING, missing)
    yield families.FINDINGS, (name, Code.IMMUTABLE, own)
    yield families.FINDINGS, (name, Code.POD_TOO_LARGE, own)
    for concern in _CONCERNS:
        if not _is_in_force(service, concern):
            continue
        mode, codes = getattr(modes, concern), _codes(service, concern)
        yield from ((families.FINDINGS, (name, code, mode)) for code in codes)
        if mode in _TRIED:
            yield families.WOULD_DENY, (name, concern)
        if mode in _TRIED and concern in _TEMPLATE_CONCERNS:
            yield families.WOULD_REWRITE, (name, concern)
        if mode is not Mode.AUDIT and concern in _TEMPLATE_CONCERNS:
            yield from ((families.WORKLOAD_WARNINGS, (name, code)) for code in codes)
        if mode is Mode.WARN and concern in _TEMPLATE_CONCERNS:
            yield families.WORKLOAD_WARNINGS, (name, Code.WOULD_REWRITE)
    yield from _list_rule_series(service)
    yield from ((families.WORKLOADS, (name, operation, Verdict.ADMIT)) for operation in ("CREATE", "UPDATE"))


def _list_rule_series(service: Service) -> Series:
    """Yield the series of the service's own rules."""
    modes = dict.fromkeys(rule.mode for rule in service.rules if rule.mode is not Mode.DISABLED)
    for mode in modes:
        yield families.FINDINGS, (service.name, Code.RULE_VIOLATED, mode)
        if mode is not Mode.AUDIT:
            yield families.WORKLOAD_WARNINGS, (service.name, Code.RULE_VIOLATED)
    for compiled in service.rule_plan.rules:
        yield families.FINDINGS, (service.name, Code.RULE_FAILED, compiled.fail("").mode)
    if not _TRIED.isdisjoint(modes):
        yield families.WOULD_DENY, (service.name, "rules")


def _codes(service: Service, concern: str) -> tuple[Code, ...]:
    names_nodes = concern == "placement" and service.placement is not None and not service.placement.allow_node_name
    return (*_CODES[concern], *((Code.NODE_NAME_SET,) if names_nodes else ()))


def _list_quota_series(service: Service, pool: Pool | None) -> Series:
    """Yield the series of quota denials, and of Pods that wait instead."""
    if not _is_in_force(service, "quota") or service.modes.quota is not Mode.ENFORCE:
        return
    quota = service.quota
    if quota is not None and quota.queue is not None and quota.queue.on_overload is OnOverload.GATE:
        yield families.OVERLOAD_GATED, (service.name,)
    for holder, windows in (
        (Holder.SERVICE, quota.windows if quota else ()),
        (Holder.POOL, pool.windows if pool else ()),
    ):
        for window in windows:
            yield from (
                (families.QUOTA_DENIED, (service.name, resource, window.window.text, holder))
                for resource in window.hard
            )
    for holder, standing in ((Holder.STANDING, quota and quota.standing), (Holder.POOL, pool and pool.standing)):
        for resource in standing.hard if standing else ():
            yield families.QUOTA_DENIED, (service.name, resource, STANDING, holder)


def _list_outage_series(service: Service) -> Series:
    """Yield the series of decisions while the store does not respond."""
    name, has_quota = service.name, _is_in_force(service, "quota")
    rule = service.quota.when_store_unavailable if service.quota is not None else WhenStoreUnavailable.LOCAL
    admits = service.failure_mode is FailureMode.OPEN or not (has_quota or _is_in_force(service, "breaker"))
    if has_quota and rule is WhenStoreUnavailable.LOCAL:
        yield families.LOCAL_ADMITTED, (name,)
    elif has_quota:
        admits = rule is WhenStoreUnavailable.ALLOW
    if admits:
        yield families.UNCOUNTED, (name,)
    else:
        mode = service.modes.quota if has_quota else service.modes.breaker
        yield families.FINDINGS, (name, Code.STORE_UNAVAILABLE, mode)
    yield from ((families.BOOKED, (name, cause)) for cause in families.BOOKING_CAUSES)
    if has_quota and service.modes.quota is Mode.ENFORCE:
        yield families.DENY_CACHE_HITS, (name,)


def _list_breaker_series(service: Service, breaker: Breaker, duties: ProcessRole, *, is_guarded: bool) -> Series:
    name, degrades = service.name, breaker.when_open is WhenOpen.DEGRADE
    enforced = service.modes.breaker is Mode.ENFORCE
    for moved in _moves(breaker):
        yield families.BREAKER_TRANSITIONS, (name, *moved)
    yield families.BREAKER_EXPIRED, (name,)
    if is_guarded and enforced and not degrades:
        yield families.BREAKER_HELD, (name,)
    if ProcessRole.REVIEWS in duties and degrades:
        yield families.DEGRADED if enforced else families.WOULD_DEGRADE, (name,)
    elif ProcessRole.REVIEWS in duties:
        yield families.BREAKER_PROBES, (name,)
        if enforced:
            yield families.BREAKER_NOT_PERMITTED, (name,)
    if ProcessRole.RECONCILES in duties and breaker.quota_exceeded is not None:
        yield families.BREAKER_EXCUSED, (name,)
    source = None if breaker.outcomes is None else breaker.outcomes.source
    if source is OutcomeSource.PUSHED and ProcessRole.REVIEWS in duties:
        yield from ((families.OUTCOMES, (name, source, result)) for result in families.PUSHED_RESULTS)
        yield from ((families.OUTCOMES_DROPPED, (name, reason)) for reason in families.PUSHED_DROPS)
    if source is OutcomeSource.POD_START and ProcessRole.RECONCILES in duties:
        yield from ((families.OUTCOMES, (name, source, result)) for result in StartResult)
        dropped = (*(result for result in Settlement if result is not Settlement.COUNTED), families.OVERFLOW)
        yield from ((families.OUTCOMES_DROPPED, (name, reason)) for reason in dropped)


def _moves(breaker: Breaker) -> Iterator[Labels]:
    """Yield a breaker's automatic transitions: from, to, reason."""
    triggers = {
        "errorRate": breaker.error_rate,
        "latency": breaker.latency,
        "quotaExceeded": breaker.quota_exceeded,
    }
    for word, trigger in triggers.items():
        if trigger is not None:
            yield State.CLOSED, State.OPEN, word
    yield State.OPEN, State.HALF_OPEN, "openForPassed"
    yield State.OPEN, State.CLOSED, "probesSucceeded"
    yield State.HALF_OPEN, State.CLOSED, "probesSucceeded"
    yield State.HALF_OPEN, State.OPEN, "probeFailed"
