"""Exchanges with a store: requests to check and charge Pods, sightings of them, and the answers."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from webhook.core.breaker import BreakerView, Transition
from webhook.core.quota.amounts import Cost
from webhook.core.quota.plans import STANDING, CounterPlan, Holder


class Acquire(Struct, frozen=True, gc=False):
    """Request to charge one Pod. `peek` (dryRun) only reads; `resize_from` is the old cost of a Pod that is resized."""

    plan: CounterPlan
    namespace: str
    uid: str
    cost: Cost
    event_source: str
    peek: bool = False
    resize_from: Cost | None = None
    name: str = ""
    """Name of the Pod, to check later whether it was created."""
    team: str = ""
    """Of its Namespace, where teams count apart."""
    counts_as_event: bool = True
    """Whether a denial by quota is an event for the breaker. For a waiting Pod it is not: nobody has asked for it."""


class Booking(Struct, frozen=True, gc=False):
    """A Pod admitted without the store, or whose record may be lost; it is charged at its own time."""

    namespace: str
    uid: str
    cost: Cost
    at_us: int
    name: str = ""
    team: str = ""


class GroupMember(Struct, frozen=True, gc=False):
    """A Pod of a group. `source` is as in `Acquire.event_source`."""

    uid: str
    name: str
    cost: Cost
    source: str


class AcquireGroup(Struct, frozen=True):
    """Request to charge Pods of one namespace together: all that are not charged yet, or none."""

    plan: CounterPlan
    namespace: str
    members: tuple[GroupMember, ...]
    team: str = ""
    """As in `Acquire`."""


class Sighting(Struct, frozen=True):
    """State of one Pod in the watch.

    `lives`: it counts as ResourceQuota counts. `created_at_us`: the time at which to charge it if the store does not
    know it; 0 for never. `is_sure`: the policy assigns it to the service; otherwise the store must know the Pod.
    `live_cost`: what it takes of the limits on live Pods, if that is not its `cost`.
    """

    namespace: str
    name: str
    uid: str
    cost: Cost
    lives: bool
    created_at_us: int = 0
    is_sure: bool = True
    team: str = ""
    live_cost: Cost | None = None


class Seen(Struct, frozen=True):
    """Effect of a sighting.

    `charged`: it had not been charged before. `raised`: it uses more than its highest charge, and the increase is
    charged. `changed`: the live Pods changed. `ignored`: the store does not know it, and its service is not certain.
    """

    charged: bool = False
    raised: bool = False
    changed: bool = False
    ignored: bool = False


class PoolPod(Struct, frozen=True):
    """A live Pod of a pool as it is counted: for which service, and with which amounts."""

    uid: str
    service: str
    amounts: Cost = {}


class UnseenPod(Struct, frozen=True):
    """A Pod that was charged and has not been seen since; unknown fields are ""."""

    uid: str
    namespace: str
    name: str
    age_us: int
    service: str = ""


class GuaranteeUse(Struct, frozen=True):
    """A member's guarantee of `hard` in a limit of its pool, its use in the limit, and what others have left of theirs.

    A member without a guarantee has neither: its use is in the pool's.
    """

    hard: int
    used: int
    kept: int


class Use(Struct, frozen=True):
    """Use of one limit after the answer. `name` is the pool's if `of` is a pool.

    `used` beyond EXACT_AMOUNT_MAX may be told as that, which no limit exceeds. `free_at_us`: when the asked amount
    fits; 0 if it fits now (or was charged), None if it never can. Live Pods free room when they end, at an unknown
    time: 0, too. `surge` is the current room above `hard`. `guarantee`: in a limit of a pool of which a part is kept
    for members.
    """

    window: str
    resource: str
    used: int
    hard: int
    asked: int = 0
    free_at_us: int | None = 0
    of: Holder = Holder.SERVICE
    name: str = ""
    surge: int = 0
    guarantee: GuaranteeUse | None = None

    @property
    def counts_live_pods(self) -> bool:
        """Whether it is a limit on live Pods, of the service or of its pool."""
        return self.window == STANDING

    @property
    def left(self) -> int:
        """How much more fits now: within the guarantee of a member, or beside those of others."""
        room = self.hard + self.surge - self.used
        if self.guarantee is None:
            return room
        return max(min(room, self.guarantee.hard - self.guarantee.used), room - self.guarantee.kept)


def find_free_at_us(over: Sequence[Use]) -> int | None:
    """Return the moment from which all of these could hold the Pod; None if one of them never can."""
    latest = 0
    for use in over:
        if use.free_at_us is None:
            return None
        latest = max(latest, use.free_at_us)
    return latest


class DeniedBy(StrEnum):
    """Guard that denied or would have: a guard that is not enforced denies nothing but is reported."""

    BREAKER = "breaker"
    QUOTA = "quota"


class Receipt(Struct, frozen=True, gc=False):
    """The store's answer to an Acquire.

    `refused` is the enforced denial; `would_refuse` names every guard in Warn or Audit that objected.
    `used` is what each of the plan's `limits` holds after the answer. `over` are the limits that the Pod exceeds;
    `free_at_us` is the moment from which all of them could hold it. `at_us` is the store's time of the answer.
    `charged_us` is the store's time of the charge that a repeated Acquire has found; 0 if it is not known.
    `local`: the store gave no answer; this replica decided by its replica share.
    """

    at_us: int
    refused: DeniedBy | None = None
    would_refuse: tuple[DeniedBy, ...] = ()
    charged: bool = False
    repeated: bool = False
    used: tuple[int, ...] = ()
    over: tuple[Use, ...] = ()
    free_at_us: int | None = 0
    breaker: BreakerView | None = None
    transitions: tuple[Transition, ...] = ()
    local: bool = False
    charged_us: int = 0


class ServiceSnapshot(Struct, frozen=True):
    """Read-only state of a service: `uses` by namespace or team ("" where it counts as one), and those of its pool.

    `is_standing_known`: the cluster's Pods have been listed, and limits on live Pods are enforced;
    `is_pool_standing_known`: so are those of its pool, None if it has none. If not `has_usage`, the store gave no
    answer: only the breaker is present, as last known.
    """

    at_us: int
    uses: Mapping[str, tuple[Use, ...]] = {}
    breaker: BreakerView | None = None
    pool: tuple[Use, ...] = ()
    is_standing_known: bool = False
    has_usage: bool = True
    is_pool_standing_known: bool | None = None
