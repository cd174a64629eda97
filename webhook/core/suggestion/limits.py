"""Suggested limits of a service or pool: the largest observed use with headroom, or the limit that already fits it."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.core.policy_fields import Quota, StandingQuota, Window
from webhook.core.quota import STANDING, canonicalize, convert_amount
from webhook.core.quota.pod_cost import format_amount
from webhook.core.suggestion.observed_use import ObservedUse, UseHistory

LOOSE_FACTOR = 2
"""A limit above this multiple of the largest use is tightened."""
_SEEN_SHARE = 0.9
"""Share of a window that must have been seen: the record of a day is a little shorter."""
_EXACT_MAX = 100
_BYTES = frozenset({"memory", "ephemeral-storage"})
_FIRST_WINDOWS = {60: ("1m", ("pods",)), 3600: ("1h", ())}
"""Windows of a service without limits, with their resources; (): all that its Pods request."""


class LimitSuggestion(Struct, frozen=True):
    """One limit: `hard` is what to write, `former` what the policy has, in the units of counters.

    Without use nothing is known, and `hard` is `former`.
    """

    window: str
    resource: str
    hard: int
    former: int | None = None
    use: ObservedUse | None = None
    namespace: str = ""
    """The namespace with the largest use, if each has its own counters."""
    hard_without: int | None = None
    """The limit without the outlier of the use, if it has one."""
    is_unseen: bool = False
    """Whether less time was seen than the window is long: then its largest use is unknown."""

    @property
    def is_changed(self) -> bool:
        return self.hard != self.former

    @property
    def quantity(self) -> int | str:
        """The limit as a policy has it."""
        return format_amount(self.resource, self.hard)


def add_headroom(largest: int, headroom_percent: int, resource: str) -> int:
    """Return a use with headroom, rounded up by at most a tenth: to two digits, or a sixteenth of a power of two."""
    wanted = -(-largest * (100 + headroom_percent) // 100)
    if canonicalize(resource).partition(".")[2] in _BYTES:
        unit = 1 << max(0, wanted.bit_length() - 5)
        return -(-wanted // unit) * unit
    unit = 10 ** max(0, len(str(wanted)) - 2) if wanted > _EXACT_MAX else 1
    return -(-wanted // unit) * unit


Histories = Mapping[str, UseHistory]
"""Charges by namespace; "" where all namespaces share the counters."""


class CounterUses(Struct, frozen=True):
    """What was seen of the counters of a service. `live` is empty where the ends of Pods are not known.

    It lacks Pods that were created before, so it raises a limit on live Pods and does not lower it.
    """

    charged: Histories
    seen_seconds: float
    live: Histories = {}
    measured: Mapping[tuple[str, str], ObservedUse] = {}
    """Uses that were measured elsewhere, by window and canonical resource."""


def has_limits(quota: Quota | None) -> bool:
    return quota is not None and bool(quota.windows or quota.standing)


def list_unseen_windows(seen_seconds: float) -> list[str]:
    """Return the windows of a first quota that are longer than the time that was seen."""
    return [text for seconds, (text, _) in _FIRST_WINDOWS.items() if _SEEN_SHARE * seconds > seen_seconds]


def suggest_limits(quota: Quota | None, evidence: CounterUses, headroom_percent: int) -> tuple[LimitSuggestion, ...]:
    """Return every limit of a quota, or those of a first one."""
    if quota is None or not has_limits(quota):
        found = list(_list_first_windows(evidence.charged))
    else:
        found = [*_list_windows(quota.windows), *_list_standing(quota.standing)]
    limits = (_suggest(limit, seconds, evidence, headroom_percent) for limit, seconds in found)
    return tuple(limit for limit in limits if limit.hard or limit.former is not None)


def suggest_pool(
    windows: Sequence[Window], evidence: CounterUses, headroom_percent: int
) -> tuple[LimitSuggestion, ...]:
    """Return every limit of a pool."""
    return tuple(_suggest(limit, seconds, evidence, headroom_percent) for limit, seconds in _list_windows(windows))


_Wanted = Iterator[tuple[LimitSuggestion, int]]


def _list_windows(windows: Sequence[Window]) -> _Wanted:
    for window in windows:
        for resource, hard in window.hard.items():
            amount = convert_amount(resource, hard.value)
            yield LimitSuggestion(window.window.text, resource, amount, amount), window.window.us // 1_000_000


def _list_standing(standing: StandingQuota | None) -> _Wanted:
    for resource, hard in standing.hard.items() if standing is not None else ():
        amount = convert_amount(resource, hard.value)
        yield LimitSuggestion(STANDING, resource, amount, amount), 0


def _list_resources(histories: Histories) -> list[str]:
    return list(dict.fromkeys(resource for history in histories.values() for resource in history.resources))


def _list_first_windows(charged: Histories) -> _Wanted:
    for seconds, (text, resources) in _FIRST_WINDOWS.items():
        for resource in resources or _list_resources(charged):
            yield LimitSuggestion(text, resource, 0), seconds


def _suggest(limit: LimitSuggestion, seconds: int, evidence: CounterUses, headroom_percent: int) -> LimitSuggestion:
    counts = canonicalize(limit.resource)
    is_unseen = _SEEN_SHARE * seconds > evidence.seen_seconds
    histories = {} if is_unseen else evidence.charged if seconds else evidence.live
    uses = [(history.measure(seconds, counts), namespace) for namespace, history in histories.items()]
    uses.append((evidence.measured.get((limit.window, counts)), ""))
    seen = [(use, namespace) for use, namespace in uses if use is not None]
    if not seen:
        return replace(limit, is_unseen=is_unseen)
    use, namespace = max(seen, key=lambda pair: pair[0].largest)
    hard = add_headroom(use.largest, headroom_percent, counts)
    if not seconds and not use.source:
        hard = max(hard, limit.former or 0)
    elif limit.former is not None and (not use.largest or hard <= limit.former <= LOOSE_FACTOR * use.largest):
        hard = limit.former  # also of what was not used: nothing tells how much of it is meant to be
    without = use.outlier and add_headroom(use.outlier.without, headroom_percent, counts)
    return replace(limit, hard=hard, use=use, namespace=namespace, hard_without=without)


def build_quota(quota: Quota | None, limits: Sequence[LimitSuggestion]) -> Quota:
    former = quota or Quota()
    standing = {limit.resource: _convert(limit) for limit in limits if limit.window == STANDING}
    return replace(
        former,
        windows=build_windows(limits),
        standing=replace(former.standing or StandingQuota({}), hard=standing) if standing else None,
    )


def build_windows(limits: Sequence[LimitSuggestion]) -> tuple[Window, ...]:
    windows: dict[str, dict[str, Quantity]] = {}
    for limit in limits:
        if limit.window != STANDING:
            windows.setdefault(limit.window, {})[limit.resource] = _convert(limit)
    return tuple(Window(Duration.parse(window), hard) for window, hard in windows.items())


def _convert(limit: LimitSuggestion) -> Quantity:
    return Quantity.parse(str(limit.quantity))
