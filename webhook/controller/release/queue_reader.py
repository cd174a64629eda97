"""Reader of the leader's queues: depths, and rows of waiting Pods with place, cause and expected moment."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from webhook.controller.release.failures import ReleaseFailure, ReleaseFailures
from webhook.controller.release.gated_pods import GatedPod
from webhook.controller.release.group_release import GroupRelease
from webhook.controller.release.pod_places import PodPlace, find_class, find_queue, format_name, make_places
from webhook.controller.release.releaser import PodReleaser
from webhook.controller.release.waiting_reasons import (
    WaitReason,
    describe_group,
    describe_hold,
    describe_obstacle,
    find_excess,
    find_stop,
)
from webhook.core.admission.denials import format_utc
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.controller.forecast import ReleaseForecast, RoomSample
from webhook.core.controller.lane import UNANSWERED
from webhook.core.controller.waiting_pod import WaitingPod
from webhook.core.quota import Acquire, CounterPlan
from webhook.core.reporting.queue_document import (
    FailingPods,
    QueueDepth,
    QueueDocument,
    QueueRow,
    WaitCause,
    describe_pause,
)
from webhook.errors import StoreUnavailableError
from webhook.ports import CounterStore

_FRESH_US = 1_000_000
"""How long computed places are used: sorting thousands of Pods would delay releases."""
_SAMPLES_MAX = 240
"""Questions to the store for one document; the expected moments of further limits are unknown."""
_FORECAST = "forecast"


@dataclass(frozen=True, slots=True)
class QueueSelection:
    """Which Pods to show: of one service, one Pod, or all; at most `limit`."""

    service: str = ""
    uid: str = ""
    limit: int = 1_000


class QueueReader:
    """Reads the queues of a `PodReleaser`, and changes nothing."""

    def __init__(
        self,
        releaser: PodReleaser,
        store: CounterStore,
        policy: Callable[[], CompiledPolicy | None],
        failures: ReleaseFailures,
        is_charged: Callable[[str], bool],
        groups: GroupRelease,
        get_unqueued: Callable[[], Mapping[str, GatedPod]] = dict,
    ) -> None:
        """`is_charged`: of a Pod that was not released, else others pass it. `get_unqueued`: by uid, in no queue."""
        self._releaser = releaser
        self._time = releaser.time
        self._store = store
        self._policy = policy
        self._failures = failures
        self._is_charged = is_charged
        self._groups = groups
        self._get_unqueued = get_unqueued
        self._places: list[PodPlace] = []
        self._placed_us: int | None = None

    def count_pods(self) -> Mapping[str, int]:
        """Return how many Pods of each service wait, with those that are tried again, and those in no queue yet."""
        counts = Counter(self._releaser.pods.count_by_service())
        counts.update(pod.waiting.service for pod in (*self._list_outside(), *self._get_unqueued().values()))
        return counts

    def list_places(self) -> Sequence[PodPlace]:
        """Return all waiting Pods by queue and place, at most a second old."""
        now_us, compiled = self._time.now_us(), self._policy()
        if compiled is not None and (self._placed_us is None or now_us - self._placed_us >= _FRESH_US):
            outside = self._list_outside()
            charged = [pod for pod in outside if self._is_charged(pod.waiting.uid)]
            passed = [pod for pod in outside if not self._is_charged(pod.waiting.uid)]
            apart = *self._releaser.pods.list_apart(), *passed, *self._get_unqueued().values()
            queues: dict[str, list[tuple[GatedPod, bool]]] = {}
            alone = (
                ([(pod, False)] for pod in charged),
                self._releaser.list_sequences(now_us),
                ([(pod, False)] for pod in apart),
            )
            for pod, is_lifted in chain.from_iterable(chain(*alone)):
                queues.setdefault(find_queue(pod, compiled), []).append((pod, is_lifted))
            self._places = [place for queue, its in queues.items() for place in make_places(queue, its, compiled)]
            self._placed_us = now_us
        return self._places

    def list_depths(self) -> tuple[QueueDepth, ...]:
        """Return the depth of each queue, also of empty ones; by class, the highest first."""
        compiled = self._policy()
        if compiled is None:
            return ()
        counts, plans, failing = self.count_pods(), compiled.plans, self._group_failing(compiled)
        names = [name for name, plan in plans.items() if plan.queue is not None or counts.get(name)]
        classes = {sla_class.name: -sla_class.priority for sla_class in compiled.policy.sla_classes}
        names.sort(key=lambda name: (classes[compiled.services[name].sla_class], name))
        names += sorted(name for name in failing if name not in plans)
        now_us, oldest_us = self._time.now_us(), dict(self._releaser.find_oldest_us())
        groups = self._groups.count(plans)
        for pod in (*self._list_outside(), *self._get_unqueued().values()):
            service, since_us = pod.waiting.service, pod.waiting.since_us
            oldest_us[service] = min(oldest_us.get(service, since_us), since_us)
        return tuple(
            QueueDepth(
                name,
                find_class(name, compiled),
                counts.get(name, 0),
                max(0, now_us - oldest_us.get(name, now_us)) // 1_000_000,
                describe_pause(plans[name]) or None if name in plans else None,
                failing.get(name, ()),
                groups.get(name),
            )
            for name in names
        )

    def _list_outside(self) -> list[GatedPod]:
        """Return the Pods that were not released and are in no order meanwhile, the oldest first."""
        found = [
            failure.pod for failure in self._failures.list_failures() if failure.pod.waiting.uid not in self._releaser
        ]
        return sorted(found, key=lambda pod: pod.waiting.since_us)

    def _group_failing(self, compiled: CompiledPolicy) -> Mapping[str, tuple[FailingPods, ...]]:
        """Return the Pods that wait because their release fails, by service and reason."""
        found: dict[str, dict[str, list[ReleaseFailure]]] = {}
        for failure in sorted(self._failures.list_failures(), key=lambda failure: failure.since_us):
            if self._find_failure(failure.pod, compiled.plans.get(failure.pod.waiting.service)) is not None:
                found.setdefault(failure.pod.waiting.service, {}).setdefault(failure.reason, []).append(failure)
        return {
            service: tuple(
                FailingPods(reason, len(its), f"{format_name(its[0].pod)}: {its[0].said}") for reason, its in by.items()
            )
            for service, by in found.items()
        }

    def _find_failure(self, pod: GatedPod, plan: CounterPlan | None) -> ReleaseFailure | None:
        """Return why a Pod was not released; None if it waits for something else by now."""
        failure = self._failures.get(pod.waiting.uid)
        if failure is None or pod.waiting.uid not in self._releaser or plan is None:
            return failure
        waits = find_stop(plan, self._store) is not None or self._releaser.find_blocking_holder(pod) is not None
        return None if waits else failure

    async def make_document(self, asked: QueueSelection) -> QueueDocument:
        """Return the document of the leader."""
        found = [
            place
            for place in self.list_places()
            if (not asked.service or place.pod.waiting.service == asked.service)
            and (not asked.uid or place.pod.waiting.uid == asked.uid)
        ]
        rows = await self.make_rows(found[: asked.limit])
        now_us = self._time.now_us()
        depths = tuple(depth for depth in self.list_depths() if asked.service in {"", depth.service})
        waiting = sum(self.count_pods().values())
        return QueueDocument(
            leads=True, time=format_utc(now_us), waiting=waiting, matching=len(found), services=depths, pods=tuple(rows)
        )

    async def make_rows(self, places: Sequence[PodPlace]) -> list[QueueRow]:
        """Return the rows of Pods."""
        compiled = self._policy()
        if compiled is None or not places:
            return []
        forecasts = await self._make_forecasts(places, compiled.plans)
        return [
            self._make_row(place, compiled, forecasts[place.queue].predict_release_us(self._find_last_uid(place.pod)))
            for place in places
        ]

    def _make_row(self, place: PodPlace, compiled: CompiledPolicy, expected_us: int | None) -> QueueRow:
        waiting, now_us = place.pod.waiting, self._time.now_us()
        plan = compiled.plans.get(waiting.service)
        cause, why, until_us = self._find_cause(place, plan)
        is_known = expected_us is not None and cause in {WaitCause.QUOTA_EXCEEDED, WaitCause.BEHIND}
        is_known = is_known and not self._is_too_large(place.pod, plan)
        rules = plan.queue if plan is not None else None
        return QueueRow(
            queue=place.queue,
            place=place.place,
            sla_class=find_class(waiting.service, compiled),
            class_place=place.class_place,
            class_waiting=place.class_waiting,
            service=waiting.service,
            namespace=place.pod.namespace,
            name=place.pod.name,
            uid=waiting.uid,
            since=format_utc(waiting.since_us),
            waiting_seconds=self.compute_waited_seconds(place),
            lifted=place.is_lifted,
            owner=place.pod.owner,
            cause=cause,
            why=why,
            expected_at=format_utc(max(now_us, self._time.find_own_us(expected_us or 0))) if is_known else None,
            expires_at=format_utc(waiting.since_us + rules.max_wait_us) if rules is not None else None,
            not_before=format_utc(until_us) if until_us else None,
        )

    def find_stopped_services(self) -> Mapping[str, WaitCause]:
        """Return the services of which no Pod is released, whatever room there is, and the cause."""
        compiled = self._policy()
        plans = compiled.plans if compiled is not None else {}
        found = {
            service: find_stop(plans[service], self._store)
            for service in self._releaser.pods.count_by_service()
            if service in plans
        }
        return {service: stopped.cause for service, stopped in found.items() if stopped is not None}

    def is_failing(self, place: PodPlace) -> bool:
        """Return whether a Pod waits because it could not be released."""
        compiled = self._policy()
        plan = compiled.plans.get(place.pod.waiting.service) if compiled is not None else None
        return self._find_failure(place.pod, plan) is not None

    def find_lack(self, place: PodPlace) -> str:
        """Return what is missing of the group of a waiting Pod; "" if nothing is."""
        return self._groups.find_lack(place.pod.waiting.uid)

    def compute_waited_seconds(self, place: PodPlace) -> int:
        return max(0, self._time.now_us() - place.pod.waiting.since_us) // 1_000_000

    def _is_too_large(self, pod: GatedPod, plan: CounterPlan | None) -> bool:
        """Return whether the group of a Pod is larger than a whole limit."""
        group = self._releaser.pods.find_group(pod)
        return group is not None and plan is not None and find_excess(plan, group.waiting.cost) is not None

    def _find_last_uid(self, pod: GatedPod) -> str:
        """Return the uid of the last Pod that is released together with this one."""
        group = self._releaser.pods.find_group(pod)
        return (pod if group is None else group.members[-1]).waiting.uid

    def _find_cause(self, place: PodPlace, plan: CounterPlan | None) -> WaitReason:
        if (failure := self._find_failure(place.pod, plan)) is not None:
            why = f"{failure.said}; retrying since {format_utc(failure.since_us)}"
            return WaitReason(WaitCause.RELEASE_FAILS, why)
        if plan is None:
            return WaitReason(WaitCause.BEHIND, "the policy has no such service: it is released at once")
        if not self._is_unqueued(place) and (lack := self.find_lack(place)):
            return WaitReason(WaitCause.GROUP_INCOMPLETE, lack)
        if (stopped := find_stop(plan, self._store)) is not None:
            return stopped
        if self._time.now_us() < self._releaser.held_until_us:
            return describe_hold(self._releaser.held_until_us)
        holder = UNANSWERED if self._is_unqueued(place) else self._releaser.find_blocking_holder(place.pod)
        reason = describe_obstacle(holder, plan.service, place.queue)
        group = self._releaser.pods.find_group(place.pod)
        return reason if group is None else describe_group(reason, group, plan)

    async def _make_forecasts(
        self, places: Sequence[PodPlace], plans: Mapping[str, CounterPlan]
    ) -> Mapping[str, ReleaseForecast]:
        last = {place.queue: place.place for place in places}
        pods: dict[str, list[tuple[WaitingPod, str]]] = {queue: [] for queue in last}
        for place in self.list_places():
            if (
                place.place <= last.get(place.queue, 0)
                and place.pod.waiting.service in plans
                and not self._is_passed(place)
            ):
                pods[place.queue].append((place.pod.waiting, place.pod.namespace))
        # In a thread: releases must not wait for the forecast of thousands of Pods.
        found = await asyncio.to_thread(lambda: {queue: ReleaseForecast(its, plans) for queue, its in pods.items()})
        asked = [(forecast, sample) for forecast in found.values() for sample in forecast.list_samples()][:_SAMPLES_MAX]
        await asyncio.gather(*(self._ask(forecast, sample) for forecast, sample in asked))
        return found

    def _is_passed(self, place: PodPlace) -> bool:
        """Return whether a Pod takes no room before others: it is tried again, in no queue, or its group incomplete."""
        uid = place.pod.waiting.uid
        is_tried_again = self._failures.get(uid) is not None and uid not in self._releaser
        return is_tried_again or self._is_unqueued(place) or bool(self.find_lack(place))

    def _is_unqueued(self, place: PodPlace) -> bool:
        return place.pod.waiting.uid in self._get_unqueued()

    async def _ask(self, forecast: ReleaseForecast, sample: RoomSample) -> None:
        asked = Acquire(sample.plan, sample.namespace, _FORECAST, sample.cost, "", peek=True, team=sample.room.scope)
        try:
            forecast.enter_answer(sample, await self._store.acquire(asked))
        except StoreUnavailableError:
            return  # unknown
