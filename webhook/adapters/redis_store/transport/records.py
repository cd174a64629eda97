"""Fields of the records of a call of the Lua script and of its answer, in their order: named here only.

The script's text is rendered from these names. A call and its answer are of one version: each server sends its script.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from webhook.adapters.redis_store.transport.breaker_rules import BreakerRules, ForcedState, QuotaRule, TriggerRule
from webhook.core.breaker import Transition
from webhook.core.quota import PoolPod, Seen

Names = tuple[str, ...]


class PlanHead(NamedTuple):
    """The part of a plan that the script reads in each call, without values that depend on the call."""

    windows: Any
    pool: Any
    quota_enforced: bool
    breaker_enforced: bool
    remember_us: int
    ttl_ms: int
    service: str
    fleet: bool
    packed_windows: Any
    standing: Any
    has_rules: bool
    has_outcomes: bool
    is_forced: bool
    is_guarded: bool
    has_quota: bool
    errors_interval_us: int | bool
    latency_interval_us: int | bool
    uid_at: int  # where the uid begins in the key of a Pod's record
    details_bytes: int
    """Length of the details, which follow the plan."""
    guarantees: Any  # of each limit of the pool the plan's own, then those of others; or false


class PlanKeyNames(NamedTuple):
    """The keys of a plan; the script reads the number of each in the call."""

    home: str
    ring: str
    breaker: str
    waits: str
    live: str
    pool_live: str  # only declared: the few calls that use it have its name in the details


PLAN_IN_CALL: Names = ("is_counted", "settled")
"""Whether `opened` counts the breaker; the `SettledMark` of a replica that owes nothing, or false."""


class PlanDetails(NamedTuple):
    """The part of a plan that the script reads in few calls."""

    breaker_ttl_ms: int
    cluster: str
    tag: str
    channel: str
    quota: QuotaRule | bool
    rules: BreakerRules | bool
    pool_live: str
    """The key of the live Pods of its pool; "" if they are not limited."""
    pool_standing: "list[PoolStandingLimit] | bool"
    counts_apart: str


class WindowLimit(NamedTuple):
    """A limit of a window; the limits of all windows are one flat list."""

    seconds: int
    resource: str
    hard: int


class MemberGuarantee(NamedTuple):
    """The guarantee of a member in a limit; those of a limit are one flat list."""

    counter: str | bool
    hard: int


class StandingLimit(NamedTuple):
    """A limit on live Pods."""

    resource: str
    hard: int
    surge: int


class PoolStandingLimit(NamedTuple):
    """A limit on the live Pods of a pool; `kept`: the guarantees in it, as `MemberGuarantee`, the plan's own first."""

    resource: str
    hard: int
    kept: list[str | bool | int]


class SettledEntry(NamedTuple):
    """A replica that owes nothing: its id, since when at least, and when the home hash began as far as it knows."""

    replica: str
    at_us: int
    born_us: int


class OutcomeEntry(NamedTuple):
    """Outcomes of one source. `pod_number`: which of the operation's keys is the Pod's record, 0 for none."""

    succeeded: int
    failed: int
    latency_us: int
    uid: str | bool
    generation: int | bool
    age_us: int
    pod_number: int


class AcquireAnswer(NamedTuple):
    """Result of `acquire` and `resize`. `refused`: the guard that denied; `would`: sum of those that only object.

    `charged_us`: of one Pod's repeated acquire, when it was charged; else 0.
    """

    at_us: int
    refused: int
    would: int
    charged: bool
    repeated: bool
    used: list[int]
    over: list[list[int]]
    view: Any
    moves: Any
    born_us: int
    charged_us: int


class BreakerAnswer(NamedTuple):
    """Result of an operation on a breaker alone."""

    moves: Any
    view: Any
    now_us: int


class StartAnswer(NamedTuple):
    """Result of `record_start`; only a start that is recorded has more than its settlement."""

    settlement: str
    moves: Any = ()
    view: Any = None
    now_us: int = 0


class TickAnswer(NamedTuple):
    """Result of `tick`. `fingerprint` identifies what is stored, if only another call can change it, or is false."""

    moves: Any
    view: Any
    now_us: int
    born_us: int
    charged_us: int
    fingerprint: str | bool


class SnapshotAnswer(NamedTuple):
    """Result of `snapshot`: figures of each scope's limits, and of the pool's, and the breaker."""

    now_us: int
    figures: list[list[int]]
    pool: list[int]
    view: Any
    is_standing_known: bool
    guarantees: list[int]
    """Of each limit of a pool with guarantees two values: own use, and what others have left; else empty."""
    is_pool_standing_known: bool


class ComparisonAnswer(NamedTuple):
    """Result of `compare`: the positions of the services that are not as they were, from 1."""

    now_us: int
    positions: list[int]


class ChargeAnswer(NamedTuple):
    """Result of `find_charge` for a known Pod."""

    service: str
    scope: str
    fleet: bool


class PlaceAnswer(NamedTuple):
    """Result of `find_place`: namespace/name and service of a Pod, "" for an unknown one."""

    place: str
    service: str


class WaitingEntry(NamedTuple):
    """A Pod in the result of `list_overdue`."""

    uid: str
    age_us: int


class PageAnswer(NamedTuple):
    """A page of Pods, and the cursor of the next one."""

    members: list[Any]
    cursor: str


class LivePageAnswer(NamedTuple):
    """A page of live Pods, the cursor of the next one, and what was found up to this page, for the script."""

    members: list[Any]
    cursor: str
    found: Any


class LivePod(NamedTuple):
    """A Pod in the result of `list_live`."""

    uid: str
    amounts: Any


class OverEntry(NamedTuple):
    """A limit that is exceeded: its number among the plan's limits, from 1, and its figures."""

    number: int
    used: int
    asked: int
    free_at_us: int
    surge: int
    own_used: int = 0
    kept: int = 0  # with guarantees in the limit: the plan's own use, and what others have left of theirs


class LimitFigures(NamedTuple):
    """Figures of a limit in a flat list: its use; from when one more fits, or of live Pods the surge."""

    used: int
    more: int


class AnnouncementMessage(NamedTuple):
    """The published state of a breaker. Servers of other versions read it."""

    tag: str
    service: str
    at_us: int
    view: Any


PASSED: Mapping[str, Names] = {
    "HEADER": ("reading", "late", "opened", "plan_count", "size"),
    "PLAN": (*PlanHead._fields, *PlanKeyNames._fields, *PLAN_IN_CALL),
    "DETAILS": PlanDetails._fields,
    "QUOTA_RULE": QuotaRule._fields,
    "TRIGGER": TriggerRule._fields,
    "FORCING": ForcedState._fields,
    "BREAKER_RULES": BreakerRules._fields,
    "LIMIT": WindowLimit._fields,
    "GUARANTEE": MemberGuarantee._fields,
    "STANDING": StandingLimit._fields,
    "POOL_STANDING": PoolStandingLimit._fields,
    "POOL_POD": PoolPod.__struct_fields__,
    "MARK": SettledEntry._fields,
    "OUTCOME": OutcomeEntry._fields,
    "GROUP_MEMBER": ("place", "cost_text", "source"),
    "ACQUIRE_ANSWER": AcquireAnswer._fields,
    "BREAKER_ANSWER": BreakerAnswer._fields,
    "START_ANSWER": StartAnswer._fields,
    "TICK_ANSWER": TickAnswer._fields,
    "SNAPSHOT_ANSWER": SnapshotAnswer._fields,
    "COMPARISON_ANSWER": ComparisonAnswer._fields,
    "CHARGE_ANSWER": ChargeAnswer._fields,
    "PLACE_ANSWER": PlaceAnswer._fields,
    "PAGE_ANSWER": PageAnswer._fields,
    "LIVE_PAGE_ANSWER": LivePageAnswer._fields,
    "LIVE_POD": LivePod._fields,
    "LIVE_SCAN": ("sums", "count", "changes"),
    "SLOT_CLAIM": ("slot", "replicas"),
    "WAITING": WaitingEntry._fields,
    "SEEN": Seen.__struct_fields__,
    "OVER": OverEntry._fields,
    "FIGURES": LimitFigures._fields,
    "MOVE": tuple(name for name in Transition.__struct_fields__ if name != "service"),
}
"""Records of a call and of its answer, by the name that they have in Lua."""
