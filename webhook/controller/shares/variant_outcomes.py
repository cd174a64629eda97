"""Outcomes of Pods for the breakers of their variants: found no node for `unschedulableFor`, or was bound as a probe.

Nothing is queued: each round compares the Pods with the breakers, and what the store has not taken is due again.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from webhook.controller.shares.reports import VariantReports
from webhook.controller.shares.variant_breakers import VariantBreaker
from webhook.controller.shares.variant_pods import VariantPods
from webhook.core.breaker import State
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.pods.variant_pod import VariantPod
from webhook.errors import StoreUnavailableError
from webhook.ports import Clock, CounterStore

_BATCH_MAX = 64
_SKEW_US = 5_000_000
"""Largest assumed difference between the clocks of the store and the API server."""


class VariantOutcomes:
    """Reports each Pod once for each state that its breaker is in."""

    def __init__(self, pods: VariantPods, store: CounterStore, clock: Clock, reports: VariantReports) -> None:
        self._pods = pods
        self._store = store
        self._clock = clock
        self._reports = reports
        self._reported: dict[str, int] = {}
        """Generations of the breakers to which Pods were reported, by the Pods' uids."""

    async def report(self, breaker: VariantBreaker) -> None:
        """Report what is due to a breaker."""
        batch = list(islice(self._list_due(breaker), _BATCH_MAX))
        if not batch:
            return
        outcomes = [Outcomes.from_single(ok=pod.is_bound, latency_us=0, uid=pod.probe) for pod in batch]
        with suppress(StoreUnavailableError):  # reported by the store; retried in the next round
            for transition in await self._store.record_outcomes(breaker.counters, outcomes):
                self._reports.on_transition(transition)
            self._reported.update((pod.uid, breaker.generation) for pod in batch)

    def sweep(self) -> None:
        """Forget Pods that are gone."""
        self._reported = {uid: generation for uid, generation in self._reported.items() if uid in self._pods}

    def _list_due(self, breaker: VariantBreaker) -> Iterator[VariantPod]:
        state, after_us, now_us = breaker.state, breaker.shares.unschedulable_for_us, self._clock.now_us()
        # After probes have closed it, a Pod that still finds no node counts again only after a while.
        is_settled = breaker.now_us - breaker.since_us >= after_us
        if state is not State.HALF_OPEN and (state is not State.CLOSED or not is_settled):
            return
        for pod in self._pods.list_of(breaker.service, breaker.variant):
            if not pod.has_breaker or self._reported.get(pod.uid) == breaker.generation:
                continue
            has_failed = pod.unschedulable_us and now_us - pod.unschedulable_us >= after_us
            if has_failed or (state is State.HALF_OPEN and pod.is_bound and _may_be_probe(pod, breaker)):
                yield pod


def _may_be_probe(pod: VariantPod, breaker: VariantBreaker) -> bool:
    """Return whether a Pod may be a probe: it was created since the breaker admits some. The store knows which are."""
    return pod.created_us >= breaker.since_us - _SKEW_US
