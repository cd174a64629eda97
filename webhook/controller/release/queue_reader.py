"""Reader of the leader's queues: depths, and rows of waiting Pods with place, cause and expected moment."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from webhook.controller.release.gated_pods import GatedPod
from webhook.controller.release.releaser import PodReleaser
from webhook.core.admission.messages.denials import utc
from webhook.core.breaker import State
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.quota import Acquire, CounterPlan, Holder
from webhook.core.release_queue import ReleaseForecast, RoomSample, WaitingPod
from webhook.core.reporting.queue_document import QueueDepth, QueueDocument, QueueRow, WaitCause, pause_text
from webhook.errors import StoreUnavailableError
from webhook.ports import CounterStore

_FRESH_US = 1_000_000
"""How long the places are used again: 10,000 Pods take 30 ms to sort."""
_SAMPLES_MAX = 240
"""Questions to the store for one document; the expected moments of further limits are unknown."""
_FORECAST = "forecast"


@dataclass(frozen=True, slots=True)
class QueueSelection:
    """Which Pods to show: of one service, one Pod, or all; at most `limit`."""

    service: str = ""
    uid: str = ""
    limit: int = 1_000


class PodPlace(Struct, frozen=True, gc=False):
    """A Pod and its places in its queue and in its class."""

    pod: GatedPod
    queue: str
    place: int
    class_place: int
    class_waiting: int
    is_lifted: bool


class QueueReader:
    """Reads the queues of a `PodReleaser`, and changes nothing."""

    def __init__(self, releaser: PodReleaser, store: CounterStore, policy: Callable[[], CompiledPolicy | None]) -> None:
        self._releaser = releaser
        self._store = store
        self._policy = policy
        self._places: list[PodPlace] = []
        self._placed_us: int | None = None

    def places(self) -> Sequence[PodPlace]:
        """Return all waiting Pods by queue and place, at most a second old."""
        now_us, compiled = self._store.now_us(), self._policy()
        if compiled is not None and (self._placed_us is None or now_us - self._placed_us >= _FRESH_US):
            self._places = [place for order in self._releaser.sequences(now_us) for place in _placed(order, compiled)]
            self._placed_us = now_us
        return self._places

    def depths(self) -> tuple[QueueDepth, ...]:
        """Return the depth of each queue, also of empty ones; by class, the highest first."""
        compiled = self._policy()
        if compiled is None:
            return ()
        now_us, oldest_us = self._store.now_us(), self._releaser.oldest_us()
        counts, plans = self._releaser.counts(), compiled.plans
        names = [name for name, plan in plans.items() if plan.queue is not None or counts.get(name)]
        classes = {one.name: -one.priority for one in compiled.policy.sla_classes}
        names.sort(key=lambda name: (classes[compiled.services[name].sla_class], name))
        return tuple(
            QueueDepth(
                name,
                compiled.services[name].sla_class,
                counts.get(name, 0),
                max(0, now_us - oldest_us.get(name, now_us)) // 1_000_000,
                pause_text(plans[name]) or None,
            )
            for name in names
        )

    async def document(self, asked: QueueSelection) -> QueueDocument:
        """Return the document of the leader."""
        found = [
            one
            for one in self.places()
            if (not asked.service or one.pod.waiting.service == asked.service)
            and (not asked.uid or one.pod.waiting.uid == asked.uid)
        ]
        rows = await self.rows(found[: asked.limit])
        now_us = self._store.now_us()
        depths = tuple(one for one in self.depths() if asked.service in {"", one.service})
        waiting = sum(self._releaser.counts().values())
        return QueueDocument(
            leads=True, time=utc(now_us), waiting=waiting, matching=len(found), services=depths, pods=tuple(rows)
        )

    async def rows(self, places: Sequence[PodPlace]) -> list[QueueRow]:
        """Return the rows of Pods."""
        compiled = self._policy()
        if compiled is None or not places:
            return []
        forecasts = await self._forecasts(places, compiled.plans)
        return [self._row(one, compiled, forecasts[one.queue].expected_us(one.pod.waiting.uid)) for one in places]

    def _row(self, one: PodPlace, compiled: CompiledPolicy, expected_us: int | None) -> QueueRow:
        waiting, now_us = one.pod.waiting, self._store.now_us()
        plan = compiled.plans[waiting.service]
        cause, why = self._cause(one, plan)
        is_known = expected_us is not None and cause in {WaitCause.QUOTA_EXCEEDED, WaitCause.BEHIND}
        return QueueRow(
            queue=one.queue,
            place=one.place,
            sla_class=compiled.services[waiting.service].sla_class,
            class_place=one.class_place,
            class_waiting=one.class_waiting,
            service=waiting.service,
            namespace=one.pod.namespace,
            name=one.pod.name,
            uid=waiting.uid,
            since=utc(waiting.since_us),
            waiting_seconds=self.waited_seconds(one),
            lifted=one.is_lifted,
            owner=one.pod.owner,
            cause=cause,
            why=why,
            expected_at=utc(max(now_us, expected_us or 0)) if is_known else None,
            expires_at=utc(waiting.since_us + plan.queue.max_wait_us) if plan.queue is not None else None,
        )

    def stopped(self) -> Mapping[str, WaitCause]:
        """Return the services of which no Pod is released, whatever room there is, and the cause."""
        compiled = self._policy()
        plans = compiled.plans if compiled is not None else {}
        found = {service: self._stopped(plans[service]) for service in self._releaser.counts() if service in plans}
        return {service: stopped[0] for service, stopped in found.items() if stopped is not None}

    def waited_seconds(self, one: PodPlace) -> int:
        return max(0, self._store.now_us() - one.pod.waiting.since_us) // 1_000_000

    def _stopped(self, plan: CounterPlan) -> tuple[WaitCause, str] | None:
        if paused := pause_text(plan):
            return WaitCause.PAUSED, f"the queue is paused {paused}"
        view = self._store.known_breaker(plan)
        is_asked = plan.queue is not None and plan.queue.for_breaker
        if view is not None and is_asked and (view.state.is_open or view.state is State.HALF_OPEN):
            until = f" until {utc(view.open_until_us)}" if view.state.is_open else ""
            return WaitCause.BREAKER_OPEN, f"the breaker is {view.state}{until}"
        return None

    def _cause(self, one: PodPlace, plan: CounterPlan) -> tuple[WaitCause, str]:
        if (stopped := self._stopped(plan)) is not None:
            return stopped
        by = self._releaser.blocked_by(one.pod)
        if by is None:
            return WaitCause.BEHIND, "others are released before it"
        cause = WaitCause.LIVE_PODS if by is Holder.STANDING else WaitCause.QUOTA_EXCEEDED
        return cause, _LIMIT_OF[by].format(service=plan.service, queue=one.queue)

    async def _forecasts(
        self, places: Sequence[PodPlace], plans: Mapping[str, CounterPlan]
    ) -> Mapping[str, ReleaseForecast]:
        last = {one.queue: one.place for one in places}
        pods: dict[str, list[tuple[WaitingPod, str]]] = {queue: [] for queue in last}
        for one in self.places():
            if one.place <= last.get(one.queue, 0):
                pods[one.queue].append((one.pod.waiting, one.pod.namespace))
        # In a thread: of 10,000 Pods it takes a tenth of a second, and releases must not wait for it.
        found = await asyncio.to_thread(lambda: {queue: ReleaseForecast(its, plans) for queue, its in pods.items()})
        asked = [(forecast, sample) for forecast in found.values() for sample in forecast.samples()][:_SAMPLES_MAX]
        await asyncio.gather(*(self._ask(forecast, sample) for forecast, sample in asked))
        return found

    async def _ask(self, forecast: ReleaseForecast, sample: RoomSample) -> None:
        asked = Acquire(sample.plan, sample.namespace, _FORECAST, sample.cost, "", peek=True)
        try:
            forecast.answered(sample, await self._store.acquire(asked))
        except StoreUnavailableError:
            return  # unknown


_LIMIT_OF = {
    Holder.SERVICE: "a limit of {service} is reached",
    Holder.POOL: "a limit of pool {queue} is reached",
    Holder.STANDING: "the limit on live Pods of {service} is reached",
}


def _placed(sequence: Sequence[tuple[GatedPod, bool]], compiled: CompiledPolicy) -> Iterable[PodPlace]:
    """Yield the places of one queue's Pods."""
    classes = [compiled.services[pod.waiting.service].sla_class for pod, _ in sequence]
    totals, before = Counter(classes), Counter[str]()
    for place, ((pod, is_lifted), sla_class) in enumerate(zip(sequence, classes, strict=True), 1):
        before[sla_class] += 1
        service = compiled.services[pod.waiting.service]
        yield PodPlace(pod, service.pool or service.name, place, before[sla_class], totals[sla_class], is_lifted)
