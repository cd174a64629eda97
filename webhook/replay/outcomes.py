"""Tells a breaker of a replay's outcomes: pushed ones as they come, those of Pods' starts as the controller does."""

from collections.abc import Sequence

from webhook.core.breaker import Transition
from webhook.core.breaker.outcome import Outcomes, Settlement, Start
from webhook.core.policy.model import Service
from webhook.core.policy_spec import OutcomeSource
from webhook.core.quota import CounterPlan
from webhook.replay.events import OutcomeFields, SumFields
from webhook.replay.store_outage import StoreOutage

_SECOND_US = 1_000_000


async def tell(
    outage: StoreOutage, service: Service, plan: CounterPlan, told: OutcomeFields | SumFields
) -> Sequence[Transition]:
    """Tell how requests or a Pod fared; return what the breaker did.

    How a Pod started is told by its uid alone: the store remembers under which generation it was let in, and whether it
    had an outcome before. A Pod that never asked in this replay is heard all the same, and so is a generation.
    """
    latency_us = round(told.latency * _SECOND_US)
    if isinstance(told, SumFields):
        total_us = latency_us * (told.succeeded + told.failed)
        return await outage.record_outcomes(
            plan, [Outcomes(told.succeeded, told.failed, total_us, generation=told.generation)]
        )
    if _of_starts(service) and told.uid is not None and told.generation is None:
        settlement, moves = await outage.started(plan, Start(told.uid, told.ok, latency_us))
        if settlement is not Settlement.UNKNOWN:
            return moves
    heard = Outcomes.one(ok=told.ok, latency_us=latency_us, uid=told.uid, generation=told.generation)
    return await outage.record_outcomes(plan, [heard])


def _of_starts(service: Service) -> bool:
    outcomes = service.breaker.outcomes if service.breaker is not None else None
    return outcomes is not None and outcomes.source is OutcomeSource.POD_START
