"""Queue of a replay: Pods wait in it, and the controller's releaser releases them in virtual time."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from webhook.controller.release.actions import ReleaseActions, Released
from webhook.controller.release.gated_groups import GroupFacts, GroupKey, find_key
from webhook.controller.release.gated_pods import GatedPod, read_membership
from webhook.controller.release.group_release import GroupRelease
from webhook.controller.release.releaser import PodReleaser
from webhook.controller.release.store_troubles import StoreTroubles
from webhook.core.admission.mutation import QUEUE_GATE
from webhook.core.admission.queueing import find_obstacle, priority_of
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.controller.waiting_pod import WaitingPod
from webhook.core.groups.completeness import Size
from webhook.core.kubernetes.controllers import find_controller_source
from webhook.core.kubernetes.pod import Pod
from webhook.core.quota import Acquire, CounterPlan, pod_cost
from webhook.errors import NoStoreAnswerError
from webhook.replay.controller import ReplayController
from webhook.replay.environment import SettableClock
from webhook.replay.store_outage import StoreOutage


class ReplayQueue:
    """A `ports.PodQueue`. `advance` runs the releaser up to a time, at each moment at which a Pod is due."""

    def __init__(
        self,
        store: StoreOutage,
        clock: SettableClock,
        policy: Callable[[], CompiledPolicy],
        controller: ReplayController,
    ) -> None:
        self._store = store
        self._clock = clock
        self._policy = policy
        self._controller = controller
        self._compiled: CompiledPolicy | None = None
        self._releaser = PodReleaser(
            store.shared, ReleaseActions(self._release, self._note_expired, self._delete), clock
        )
        self._released: set[GroupKey] = set()
        """Groups that were released. Of groups whose Pods do not carry their size, each Pod is complete by itself."""
        facts = GroupFacts(lambda _: Size(1), self._released.__contains__)
        self._groups = GroupRelease(self._releaser, store.shared, facts, StoreTroubles(lambda _: None))
        self._pods: dict[str, Mapping[str, Any]] = {}
        self._next_us: int | None = None
        self._left: dict[str, dict[str, list[str]]] = defaultdict(lambda: {"released": [], "expired": []})

    def find_overload(self, plan: CounterPlan) -> str:  # noqa: ARG002  as in the port
        """Return "": reviews take no time here."""
        return ""

    async def find_reason_to_wait(self, asked: Acquire, *, is_dry_run: bool) -> str:  # noqa: ARG002  as in the port
        """Return why a Pod has to wait: others of its service wait, or it would be denied."""
        if self._store.is_down:
            raise NoStoreAnswerError("the store is down", sent=False)
        if asked.plan.queue is not None and asked.plan.queue.only_on_overload:
            return ""
        if waiting := self._releaser.pods.count(asked.plan.service):
            return f"{waiting} Pods of the service wait"
        return find_obstacle(asked.plan, await self._store.acquire(replace(asked, peek=True)))

    async def enqueue(self, asked: Acquire) -> bool:
        rules = asked.plan.queue
        return rules is None or self._releaser.pods.count(asked.plan.service) < rules.max_pods

    async def add(self, uid: str, plan: CounterPlan, scope: str, document: Mapping[str, Any]) -> None:
        """Add a gated Pod, as the API server stores it. `scope` is that of its windows."""
        pod = Pod.from_document(document)
        cost = pod_cost.compute_cost(pod, self._policy().counted[plan.service])
        priority = priority_of(pod)
        waiting = WaitingPod(uid, plan.service, self._store.now_us(), cost, scope, priority)
        self._pods[uid] = document
        group = read_membership(pod)
        self._groups.put(
            GatedPod(waiting, pod.metadata.namespace, pod.metadata.name, find_controller_source(pod), group=group)
        )
        await self._step()

    async def remove(self, uid: str) -> None:
        """Remove a Pod that was deleted; others may be due."""
        self._pods.pop(uid, None)
        self._groups.remove(uid)
        await self._retry_all()

    @property
    def is_empty(self) -> bool:
        return not self._pods

    async def advance(self, until_us: int) -> None:
        """Release and expire what is due up to a time, each at its moment."""
        if self._compiled is not self._policy():
            await self._retry_all()
        while self._next_us is not None and self._next_us <= until_us:
            self._clock.set(max(self._next_us, self._clock.now_us()))
            await self._step()

    async def _retry_all(self) -> None:
        """Try all waiting Pods again, under the policy in force: its limits, or what lives, may have changed."""
        if self._compiled is not self._policy():
            self._compiled = self._policy()
            self._releaser.begin(self._compiled.plans)
        self._groups.review_all()
        self._releaser.retry()
        await self._step()

    async def _step(self) -> None:
        for _, pod in await self._groups.update(self._policy().plans):
            await self._release(pod)
        self._next_us = await self._releaser.step()

    def count_waiting(self, service: str) -> int:
        return self._releaser.pods.count(service)

    def take_left(self, service: str) -> dict[str, list[str]]:
        """Return the uids that were released and that expired since the last call."""
        return self._left.pop(service, {"released": [], "expired": []})

    async def _release(self, whole: Released) -> None:
        """Remove the gates, as the controller does, and let the Pod tracker see it."""
        for pod in self._groups.take(whole):
            self._released.update(filter(None, [find_key(pod)]))
            await self._remove_gate(pod)

    async def _remove_gate(self, pod: GatedPod) -> None:
        document = msgspec.json.decode(msgspec.json.encode(self._pods.pop(pod.waiting.uid)))
        gates = document["spec"].get("schedulingGates", [])
        document["spec"]["schedulingGates"] = [gate for gate in gates if gate["name"] != QUEUE_GATE]
        self._left[pod.waiting.service]["released"].append(pod.waiting.uid)
        await self._controller.report_admission(pod.waiting.uid, document)

    def _note_expired(self, pod: GatedPod) -> None:
        self._left[pod.waiting.service]["expired"].append(pod.waiting.uid)

    async def _delete(self, pod: GatedPod) -> bool:
        self._note_expired(pod)
        self._groups.remove(pod.waiting.uid)
        del self._pods[pod.waiting.uid]
        await self._controller.report_deletion(pod.waiting.uid)
        return True
