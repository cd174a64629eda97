"""A cluster, its watch, a store and a controller, stepped manually: every order of events is possible."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces
from webhook.adapters.kubernetes.api.objects import Listed, ListMetadata
from webhook.adapters.kubernetes.api.unread_objects import UnreadObject
from webhook.adapters.kubernetes.pods import WatchedPods
from webhook.adapters.memory_store import MemoryStore
from webhook.controller import Controller, ControllerReports, ControllerTiming
from webhook.controller.pod_lifecycle import PodObserver
from webhook.core.breaker import Transition
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document.loading import load_effective
from webhook.core.kubernetes.pod import Container, Pod, PodMetadata, PodSpec, PodStatus, Resources
from webhook.core.pods.ownership import compute_end_us
from webhook.core.policy.model import LoadedPolicy
from webhook.core.quota import Acquire, CounterPlan, Receipt, pod_cost
from webhook.errors import StoreUnavailableError
from webhook.ports import Continuity, PodEventHandler, PodLookup, WatchReports

START_US = 1_800_000_000_000_000
SECOND_US = 1_000_000
WITHOUT_DELAYS = ControllerTiming(
    first_retry_seconds=0, retry_seconds_max=0, repair_seconds=0, round_seconds=0.001, loss_seconds=0
)
NO_REPORTS = WatchReports(lambda: None, lambda _: None, lambda _: None)

WEB = """
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  quota: {windows: [{window: 24h, hard: {pods: 100000}}], standing: {hard: {pods: 100000, cpu: 100000}}}
"""


def compile_policy(services: str = WEB, head: str = "") -> CompiledPolicy:
    text = f"apiVersion: podgate.io/v1alpha1\nkind: Policy\n{head}\nservices:\n{services}"
    return CompiledPolicy(LoadedPolicy(load_effective(text.encode(), None).policy, "0" * 16))


def format_moment(now_us: int) -> str:
    from datetime import UTC, datetime  # noqa: PLC0415  for timestamps only

    return datetime.fromtimestamp(now_us / SECOND_US, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(uid: str, name: str = "", labels: dict[str, str] | None = None, cpu: str = "1", **spec: Any) -> Pod:
    """Make a Pod, by default of service `web` in namespace shop."""
    metadata = PodMetadata(name or f"pod-{uid}", namespace=spec.pop("namespace", "shop"), uid=uid)
    labels = {"app": "web", "podgate.io/service": "web"} if labels is None else labels
    owners, annotations = spec.pop("owners", None), spec.pop("annotations", None)
    metadata = replace(metadata, labels=labels, owner_references=owners, annotations=annotations)
    return Pod(metadata, PodSpec(containers=(Container("c", Resources({"cpu": cpu})),), **spec))


class Cluster:
    """Pods and all their versions, as in etcd."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.revision = 100
        self.pods: dict[str, Pod] = {}
        self.log: list[tuple[int, bool, Pod]] = []
        self.compacted = 0
        self.created_uids: set[str] = set()

    def create(self, new: Pod) -> None:
        self.created_uids.add(new.metadata.uid)
        self._write(replace(new, metadata=replace(new.metadata, creation_timestamp=format_moment(self.clock.now_us()))))

    def update(self, uid: str, **changes: Any) -> None:
        current = self.pods[uid]
        spec = replace(current.spec, **changes.pop("spec", {}))
        status_fields = set(PodStatus.__struct_fields__) & set(changes)
        status = replace(current.status, **{name: changes.pop(name) for name in status_fields})
        self._write(Pod(replace(current.metadata, **changes), spec, status))

    def terminate(self, uid: str, grace_seconds: int) -> None:
        """Request the deletion of a Pod, which no kubelet completes."""
        ends = format_moment(self.clock.now_us() + grace_seconds * SECOND_US)
        metadata = replace(
            self.pods[uid].metadata, deletion_timestamp=ends, deletion_grace_period_seconds=grace_seconds
        )
        self._write(replace(self.pods[uid], metadata=metadata))

    def list_live(self) -> list[str]:
        """Return the Pods that ResourceQuota counts."""
        now_us = self.clock.now_us()
        return [uid for uid, each in self.pods.items() if now_us <= compute_end_us(each)]

    def delete(self, uid: str) -> None:
        self._write(self.pods[uid], is_deleted=True)

    def _write(self, version: Pod, *, is_deleted: bool = False) -> None:
        self.revision += 1
        version = replace(version, metadata=replace(version.metadata, resource_version=str(self.revision)))
        self.pods[version.metadata.uid] = version
        if is_deleted:
            del self.pods[version.metadata.uid]
        self.log.append((self.revision, is_deleted, version))

    def compact(self) -> None:
        """Compact all versions up to now."""
        self.compacted = self.revision


class ScriptedWatch(WatchedPods):
    """The real watch without a connection: a test steps the arrival of events."""

    def __init__(self, cluster: Cluster, clock: VirtualClock, resume: Continuity | None = None) -> None:
        super().__init__(None, clock, reports=NO_REPORTS, resume=resume)  # type: ignore[arg-type]  there is no API server
        self.cluster = cluster
        self.position: int | None = None
        self.event_handler: PodEventHandler | None = None
        self.fails_lookups = False
        self.page_size = 2
        self.lookups: list[str] = []

    async def run(self, taker: PodEventHandler) -> None:
        self.event_handler = taker
        await asyncio.Event().wait()

    def list_again(self) -> None:
        self.position = None

    def cut(self) -> None:
        """Lose the connection, so that the next step is a list."""
        self.position = None

    async def find(self, namespace: str, name: str) -> PodLookup | None:
        self.lookups.append(name)
        if self.fails_lookups:
            return None
        version = [each for each in self.cluster.pods.values() if each.metadata.name == name]
        same_pod = [each for each in version if each.metadata.namespace == namespace]
        return PodLookup(same_pod[0] if same_pod else None, self.cluster.revision)

    async def step(self, taker: PodEventHandler, events: int = 1_000_000) -> None:
        """List if necessary, else deliver some events, and a bookmark after the last one."""
        if self.position is None:
            self.position = int((await self._list(taker)).version)
            return
        handler = self._watch(taker)._handler
        if self.position < self.cluster.compacted:
            handler.on_lost()
            self.position = None
            return
        pending = [entry for entry in self.cluster.log if entry[0] > self.position]
        for revision, is_deleted, version in pending[:events]:
            await handler.on_change(version, is_deleted)
            handler.on_reached(str(revision))
            self.position = revision
        if len(pending) <= events:
            handler.on_reached(str(self.cluster.revision))
            self.position = self.cluster.revision

    async def _read_pages(self) -> AsyncIterator[tuple[Listed[Pod], tuple[UnreadObject, ...]]]:
        snapshot, version = tuple(self.cluster.pods.values()), str(self.cluster.revision)
        for begin in range(0, max(1, len(snapshot)), self.page_size):
            end = begin + self.page_size
            token = str(end) if end < len(snapshot) else ""
            yield Listed(ListMetadata(version, token), list(snapshot[begin:end])), ()


_CALLS = frozenset(
    {
        "acquire",
        "observe",
        "list_overdue",
        "refund",
        "stop_waiting",
        "list_scopes",
        "list_live",
        "mark_complete",
        "list_pool_live",
        "mark_pool_complete",
        "drop_pool_pods",
        "reset",
        "record_starts",
        "suppress_quota_events",
    }
)


class UnreliableStore(MemoryStore):
    """A store that a test can make unavailable."""

    is_unavailable = False

    def __getattribute__(self, name: str) -> Any:
        get = super().__getattribute__
        return get("_fail") if name in _CALLS and get("is_unavailable") else get(name)

    async def _fail(self, *_: object) -> None:
        raise StoreUnavailableError("away")


@dataclass
class RecordedReports:
    """The reports of the controller, recorded."""

    refunded: Counter[tuple[str, str]] = field(default_factory=Counter)
    unproven: Counter[str] = field(default_factory=Counter)
    charged_late: Counter[str] = field(default_factory=Counter)
    raised: Counter[str] = field(default_factory=Counter)
    ignored: int = 0
    drift: dict[str, int] = field(default_factory=dict)
    pool_drift: dict[str, int] = field(default_factory=dict)
    watched: int = 0
    started: Counter[tuple[str, str]] = field(default_factory=Counter)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    exempted: Counter[str] = field(default_factory=Counter)
    transitions: list[Transition] = field(default_factory=list)

    def reports(self) -> ControllerReports:
        def count_ignored() -> None:
            self.ignored += 1

        def set_watched(count: int) -> None:
            self.watched = count

        return ControllerReports(
            on_refunded=lambda service, _, cause: self.refunded.update([(service, cause)]),
            on_unproven=lambda service: self.unproven.update([service]),
            on_charged_afterwards=lambda service: self.charged_late.update([service]),
            on_raised=lambda service: self.raised.update([service]),
            on_label_ignored=count_ignored,
            on_drift=self.drift.__setitem__,
            on_pool_drift=self.pool_drift.update,
            on_watched=set_watched,
            on_started=lambda service, result: self.started.update([(service, result)]),
            on_start_dropped=lambda service, reason: self.dropped.update([(service, reason)]),
            on_quota_events_suppressed=lambda service, count: self.exempted.update({service: count}),
            on_transition=self.transitions.append,
        )


class ControllerSimulation:
    """Cluster, watch, store and controller. The controller's loops do not run: a test runs their steps."""

    def __init__(
        self,
        services: str = WEB,
        head: str = "",
        labels: dict[str, dict[str, str]] | None = None,
        observers: Sequence[PodObserver] = (),
    ) -> None:
        self.observers = observers
        self.clock = VirtualClock(START_US)
        self.cluster = Cluster(self.clock)
        self.store = UnreliableStore(self.clock)
        self.policy = compile_policy(services, head)
        self.namespaces = FixedNamespaces(labels)
        self.reported = RecordedReports()
        self.lease: Continuity | None = None
        self.change_leader()

    def change_leader(self) -> None:
        """Start another controller, which resumes at the version in the lease."""
        self.watch = ScriptedWatch(self.cluster, self.clock, self.lease)
        self.controller = Controller(
            self.watch,
            self.store,
            self.store,
            self.clock,
            lambda: self.policy,
            self.namespaces,
            self.reported.reports(),
            observers=self.observers,
            timing=WITHOUT_DELAYS,
        )
        self.tracker = self.controller._tracker

    @property
    def plan(self) -> CounterPlan:
        return self.policy.plans["web"]

    def wait(self, seconds: float) -> None:
        self.clock.set(self.clock.now_us() + int(seconds * SECOND_US))

    def set_available(self, *, store: bool | None = None, lookups: bool | None = None) -> None:
        """Make the store, or lookups of single Pods, available or unavailable."""
        if store is not None:
            self.store.is_unavailable = not store
        if lookups is not None:
            self.watch.fails_lookups = not lookups

    async def admit(self, new: Pod, service: str = "web") -> Receipt:
        """Charge a Pod, as the validating half does."""
        cost = pod_cost.compute_cost(new, self.policy.counted[service])
        arguments = new.metadata.namespace, new.metadata.uid, cost, "user:alice"
        return await self.store.acquire(Acquire(self.policy.plans[service], *arguments, name=new.metadata.name))

    async def create(self, *uids: str, **fields: Any) -> None:
        """Admit Pods and create them."""
        for uid in uids:
            new = pod(uid, **fields)
            await self.admit(new)
            self.cluster.create(new)

    async def watch_all(self) -> None:
        """Deliver all versions that were written."""
        for _ in range(3):
            await self.watch.step(self.tracker)

    async def send_sightings_once(self) -> None:
        await self.controller._sighting_sender.send()

    async def send_sightings(self) -> None:
        for _ in range(10):
            self.tracker.enqueue_ended()
            await self.controller._sighting_sender.send()

    async def send_starts(self) -> None:
        """Look up Pods past their deadline; send start outcomes and disruptions to the store."""
        await self.controller._start_tracker.round()
        for _ in range(5):
            await self.controller._disruptions.send()
            await self.controller._outcome_sender.send()

    async def refund(self) -> None:
        await self.controller._refunds.round()

    async def repair(self) -> None:
        repairing = asyncio.create_task(self.controller._drift_repair.round())
        while not repairing.done():
            await self.controller._sighting_sender.send()
            await asyncio.sleep(0)
        await repairing

    async def run_all(self) -> None:
        """Run each step of the controller."""
        await self.watch_all()
        await self.send_sightings()
        await self.send_starts()
        await self.refund()
        await self.repair()

    def renew(self) -> None:
        """Save the controller's resume version, as a renewal of the lease does."""
        self.lease = self.controller.continuity() or self.lease

    async def list_standing(self) -> set[str]:
        uids: set[str] = set()
        for scope in await self.store.list_scopes(self.plan):
            uids.update((await self.store.list_live(self.plan, scope))[0])
        return uids

    async def count_used(self) -> int:
        """Return the number of Pods in the service's window."""
        snapshot = await self.store.snapshot(self.plan)
        return next(use.used for uses in snapshot.uses.values() for use in uses if use.window == "24h")

    async def list_overdue_uids(self) -> list[str]:
        return [each.uid for each in await self.store.list_overdue(self.plan, 0, 10_000)]
