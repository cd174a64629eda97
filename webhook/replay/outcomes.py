"""Outcomes of a replay: pushed ones are recorded directly, Pod starts through the controller's sender."""

from collections.abc import Sequence

from webhook.core.breaker import Transition
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.policy.model import Service
from webhook.core.policy_spec import OutcomeSource
from webhook.core.quota import CounterPlan
from webhook.replay.controller import ReplayController, is_unknown
from webhook.replay.events import OutcomeFields, SumFields
from webhook.replay.store_outage import StoreOutage

_SECOND_US = 1_000_000


async def record(
    outage: StoreOutage,
    controller: ReplayController,
    service: Service,
    plan: CounterPlan,
    fields: OutcomeFields | SumFields,
) -> Sequence[Transition]:
    """Record the outcomes of an event; return the breaker's transitions, except those that the controller reports.

    A Pod start is identified by its uid: the store remembers the generation under which the Pod was admitted, and
    whether it had an outcome. An outcome of a Pod that this replay has not admitted counts too, as one with a
    generation does.
    """
    latency_us = round(fields.latency * _SECOND_US)
    if isinstance(fields, SumFields):
        total_us = latency_us * (fields.succeeded + fields.failed)
        sums = Outcomes(fields.succeeded, fields.failed, total_us, generation=fields.generation)
        return await outage.record_outcomes(plan, [sums])
    if _has_starts(service) and fields.uid is not None and fields.generation is None:
        dropped = await controller.started(plan.service, fields.uid, ok=fields.ok, latency_us=latency_us)
        if not is_unknown(dropped):
            return ()
    one = Outcomes.one(ok=fields.ok, latency_us=latency_us, uid=fields.uid, generation=fields.generation)
    return await outage.record_outcomes(plan, [one])


def _has_starts(service: Service) -> bool:
    outcomes = service.breaker.outcomes if service.breaker is not None else None
    return outcomes is not None and outcomes.source is OutcomeSource.POD_START
