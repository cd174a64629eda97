"""What a store answers: how each limit stands, and who refused."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from webhook.core.breaker import BreakerView, Transition
from webhook.core.quota.plans import Holder


class Use(Struct, frozen=True):
    """One limit as it stands after the answer. `name` is the pool's where `of` is a pool.

    `free_at_us`: from then on the asked amount fits; 0 where it fits now (or was charged), None where it never can.
    What stands makes room when others end, which nobody knows beforehand: 0, too. `surge` is its room above `hard` now.
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
    """Return the moment from which all of these could hold the Pod; None where one of them never can."""
    latest = 0
    for use in over:
        if use.free_at_us is None:
            return None
        latest = max(latest, use.free_at_us)
    return latest


class DeniedBy(StrEnum):
    """Which guard refused, or would have: a guard that is not enforced refuses nothing and is named all the same."""

    BREAKER = "breaker"
    QUOTA = "quota"


class Receipt(Struct, frozen=True):
    """The store's answer to an Acquire.

    `refused` is the enforced refusal; `would_refuse` names every guard in Warn or Audit that objected.
    `used` is what each of the plan's `limits` holds after the answer. `over` are those that do not hold the Pod;
    `free_at_us` is the moment from which all of them could. `at_us` is the store's time of the answer.
    `local`: the store gave no answer, this replica judged by its share.
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
    """How a service stands, without a trace: `uses` by namespace ("" where it counts as one), and those of its pool.

    `is_standing_known`: the cluster's Pods have been listed, and limits on live ones are enforced. Unless `is_told` the
    store gave no answer: then only the breaker is shown, as it was last known.
    """

    at_us: int
    uses: Mapping[str, tuple[Use, ...]] = {}
    breaker: BreakerView | None = None
    pool: tuple[Use, ...] = ()
    is_standing_known: bool = False
    is_told: bool = True
