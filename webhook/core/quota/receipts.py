"""Answers of a store: the use of each limit, and the guard that denied."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from webhook.core.breaker import BreakerView, Transition
from webhook.core.quota.plans import Holder


class Use(Struct, frozen=True):
    """Use of one limit after the answer. `name` is the pool's if `of` is a pool.

    `free_at_us`: when the asked amount fits; 0 if it fits now (or was charged), None if it never can. Live Pods free
    room when they end, at an unknown time: 0, too. `surge` is the current room above `hard`.
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


def all_free_at_us(over: Sequence[Use]) -> int | None:
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


class ServiceSnapshot(Struct, frozen=True):
    """Read-only state of a service: `uses` by namespace ("" where it counts as one), and those of its pool.

    `is_standing_known`: the cluster's Pods have been listed, and limits on live Pods are enforced. If not `has_usage`,
    the store gave no answer: only the breaker is present, as last known.
    """

    at_us: int
    uses: Mapping[str, tuple[Use, ...]] = {}
    breaker: BreakerView | None = None
    pool: tuple[Use, ...] = ()
    is_standing_known: bool = False
    has_usage: bool = True
