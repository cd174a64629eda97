"""A cluster, its watch, a store and a controller, stepped manually: every order of events is possible."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces
from webhook.adapters.kubernetes.api.objects import Listed, ListMetadata
from webhook.adapters.kubernetes.pods import WatchedPods
from webhook.adapters.memory_store import MemoryStore
from webhook.controller import Controller, ControllerReports, ControllerTiming
from webhook.core.breaker import Transition
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document.loading import load_effective
from webhook.core.kubernetes.pod import Container, Pod, PodMetadata, PodSpec, PodStatus, Resources
from webhook.core.pods.ownership import ends_at_us
from webhook.core.policy.model import LoadedPolicy
from webhook.core.quota import Acquire, CounterPlan, Receipt, pod_cost
from webhook.errors import StoreUnavailableError
from webhook.ports import Continuity, PodEventHandler, PodLookup, WatchReports

START_US = 1_800_000_000_000_000
SECOND_US = 1_000_000
EAGER = ControllerTiming(first_retry_seconds=0, longest_retry_seconds=0, repair_seconds=0, round_seconds=0.001)
SILENT = WatchReports(lambda: None, lambda _: None, lambda _: None)

WEB = """
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  quota: {windows: [{window: 24h, hard: {pods: 100000}}], standing: {hard: {pods: 100000, cpu: 100000}}}
"""


def compiled(services: str = WEB, head: str = "") -> CompiledPolicy:
    text = f"apiVersion: podgate.io/v1alpha1\nkind: Policy\n{head}\nservices:\n{services}"
    return CompiledPolicy(LoadedPolicy(load_effective(text.encode(), None).policy, "0" * 16))


def at(now_us: int) -> str:
    from datetime import UTC, datetime  # noqa: PLC0415  one word of a test's

    return datetime.fromtimestamp(now_us / SECOND_US, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(uid: str, name: str = "", labels: dict[str, str] | None = None, cpu: str = "1", **spec: Any) -> Pod:
    """Make a Pod of service `web` in namespace shop, unless told otherwise."""
    metadata = PodMetadata(name or f"pod-{uid}", namespace=spec.pop("namespace", "shop"), uid=uid)
    labels = {"app": "web", "podgate.io/service": "web"} if labels is None else labels
    owners, annotations = spec.pop("owners", None), spec.pop("annotations", None)
    metadata = replace(metadata, labels=labels, owner_references=owners, annotations=annotations)
    return Pod(metadata, PodSpec(containers=(Container("c", Resources({"cpu": cpu})),), **spec))


class Cluster:
    """Pods, and all that was ever written of them, as etcd has it."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.revision = 100
        self.pods: dict[str, Pod] = {}
        self.log: list[tuple[int, bool, Pod]] = []
        self.compacted = 0
        self.ever: set[str] = set()

    def create(self, new: Pod) -> None:
        self.ever.add(new.metadata.uid)
        self._write(replace(new, metadata=replace(new.metadata, creation_timestamp=at(self.clock.now_us()))))

    def update(self, uid: str, **changes: Any) -> None:
        found = self.pods[uid]
        spec = replace(found.spec, **changes.pop("spec", {}))
        of_status = set(PodStatus.__struct_fields__) & set(changes)
        status = replace(found.status, **{name: changes.pop(name) for name in of_status})
        self._write(Pod(replace(found.metadata, **changes), spec, status))

    def terminate(self, uid: str, grace_seconds: int) -> None:
        """Ask for its end. Whoever should end it may never do so."""
        ends = at(self.clock.now_us() + grace_seconds * SECOND_US)
        metadata = replace(
            self.pods[uid].metadata, deletion_timestamp=ends, deletion_grace_period_seconds=grace_seconds
        )
        self._write(replace(self.pods[uid], metadata=metadata))

    def live(self) -> list[str]:
        """Return who counts as ResourceQuota counts."""
        now_us = self.clock.now_us()
        return [uid for uid, found in self.pods.items() if now_us <= ends_at_us(found)]

    def delete(self, uid: str) -> None:
        self._write(self.pods[uid], gone=True)

    def _write(self, found: Pod, *, gone: bool = False) -> None:
        self.revision += 1
        found = replace(found, metadata=replace(found.metadata, resource_version=str(self.revision)))
        self.pods[found.metadata.uid] = found
        if gone:
            del self.pods[found.metadata.uid]
        self.log.append((self.revision, gone, found))

    def compact(self) -> None:
        """Forget all versions up to now."""
        self.compacted = self.revision


class ScriptedWatch(WatchedPods):
    """The real one, but for the connection: what arrives, arrives when a test says so."""

    def __init__(self, cluster: Cluster, clock: VirtualClock, resume: Continuity | None = None) -> None:
        super().__init__(None, clock, reports=SILENT, resume=resume)  # type: ignore[arg-type]  no API server is asked
        self.cluster = cluster
        self.position: int | None = None
        self.taker: PodEventHandler | None = None
        self.is_blind = False
        self.page = 2
        self.looks: list[str] = []
        self._snapshot: Sequence[Pod] = ()
        self._snapshot_version = 0

    async def run(self, taker: PodEventHandler) -> None:
        self.taker = taker
        await asyncio.Event().wait()

    def list_again(self) -> None:
        self.position = None

    def cut(self) -> None:
        """Lose the connection, so that only a list can tell what is there."""
        self.position = None

    async def find(self, namespace: str, name: str) -> PodLookup | None:
        self.looks.append(name)
        if self.is_blind:
            return None
        found = [one for one in self.cluster.pods.values() if one.metadata.name == name]
        same = [one for one in found if one.metadata.namespace == namespace]
        return PodLookup(same[0] if same else None, self.cluster.revision)

    async def step(self, taker: PodEventHandler, events: int = 1_000_000) -> None:
        """List if need be, else take some events and then, if nothing is left, a bookmark."""
        if self.position is None:
            self.position = int((await self._list(taker)).version)
            return
        handler = self._watch(taker)._handler
        if self.position < self.cluster.compacted:
            handler.lost()
            self.position = None
            return
        behind = [entry for entry in self.cluster.log if entry[0] > self.position]
        for revision, gone, found in behind[:events]:
            await handler.one(found, gone)
            handler.reached(str(revision))
            self.position = revision
        if len(behind) <= events:
            handler.reached(str(self.cluster.revision))
            self.position = self.cluster.revision

    async def _page(self, after: str) -> Listed[Pod]:
        if not after:
            self._snapshot, self._snapshot_version = tuple(self.cluster.pods.values()), self.cluster.revision
        begin = int(after or 0)
        end = begin + self.page
        more = str(end) if end < len(self._snapshot) else ""
        return Listed(ListMetadata(str(self._snapshot_version), more), list(self._snapshot[begin:end]))


_CALLS = frozenset(
    {
        "acquire",
        "observe",
        "overdue",
        "refund",
        "stop_waiting",
        "scopes",
        "live",
        "mark_complete",
        "reset",
        "started",
        "suppress_quota_events",
    }
)


class Outages(MemoryStore):
    """A store that is away when it is told to be."""

    is_away = False

    def __getattribute__(self, name: str) -> Any:
        get = super().__getattribute__
        return get("_refuse") if name in _CALLS and get("is_away") else get(name)

    async def _refuse(self, *_: object) -> None:
        raise StoreUnavailableError("away")


@dataclass
class Told:
    """What the controller has reported."""

    refunded: Counter[tuple[str, str]] = field(default_factory=Counter)
    unproven: Counter[str] = field(default_factory=Counter)
    afterwards: Counter[str] = field(default_factory=Counter)
    raised: Counter[str] = field(default_factory=Counter)
    ignored: int = 0
    drift: dict[str, int] = field(default_factory=dict)
    watched: int = 0
    started: Counter[tuple[str, str]] = field(default_factory=Counter)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    transitions: list[Transition] = field(default_factory=list)

    def reports(self) -> ControllerReports:
        def ignored() -> None:
            self.ignored += 1

        def watched(count: int) -> None:
            self.watched = count

        return ControllerReports(
            lambda service, cause: self.refunded.update([(service, cause)]),
            lambda service: self.unproven.update([service]),
            lambda service: self.afterwards.update([service]),
            lambda service: self.raised.update([service]),
            ignored,
            self.drift.__setitem__,
            watched,
            lambda service, result: self.started.update([(service, result)]),
            lambda service, reason: self.dropped.update([(service, reason)]),
            lambda service, count: self.excused.update({service: count}),
            self.transitions.append,
        )


class World:
    """All of it. The controller's loops do not run: a test takes their steps."""

    def __init__(self, services: str = WEB, head: str = "", labels: dict[str, dict[str, str]] | None = None) -> None:
        self.clock = VirtualClock(START_US)
        self.cluster = Cluster(self.clock)
        self.store = Outages(self.clock)
        self.policy = compiled(services, head)
        self.namespaces = FixedNamespaces(labels)
        self.reported = Told()
        self.lease: Continuity | None = None
        self.lead()

    def lead(self) -> None:
        """Let a new controller begin where the lease says, whatever the former one was doing."""
        self.watch = ScriptedWatch(self.cluster, self.clock, self.lease)
        self.controller = Controller(
            self.watch,
            self.store,
            self.store,
            self.clock,
            lambda: self.policy,
            self.namespaces,
            self.reported.reports(),
            timing=EAGER,
        )
        self.tracker = self.controller._tracker

    @property
    def plan(self) -> CounterPlan:
        return self.policy.plans["web"]

    def wait(self, seconds: float) -> None:
        self.clock.set(self.clock.now_us() + int(seconds * SECOND_US))

    def answer(self, *, store: bool | None = None, looks: bool | None = None) -> None:
        """Let the store, or the cluster when it is asked for one Pod, answer or not."""
        if store is not None:
            self.store.is_away = not store
        if looks is not None:
            self.watch.is_blind = not looks

    async def admit(self, new: Pod, service: str = "web") -> Receipt:
        """Charge a Pod, as the validating half does."""
        cost = pod_cost.taken(new, self.policy.counted[service])
        place = new.metadata.namespace, new.metadata.uid, cost, "user:alice"
        return await self.store.acquire(Acquire(self.policy.plans[service], *place, name=new.metadata.name))

    async def create(self, *uids: str, **fields: Any) -> None:
        """Admit Pods that come to be."""
        for uid in uids:
            new = pod(uid, **fields)
            await self.admit(new)
            self.cluster.create(new)

    async def watch_all(self) -> None:
        """Let everything arrive that has been written."""
        for _ in range(3):
            await self.watch.step(self.tracker)

    async def tell_once(self) -> None:
        await self.controller._sighting_sender.send()

    async def tell(self) -> None:
        for _ in range(10):
            self.tracker.enqueue_ended()
            await self.controller._sighting_sender.send()

    async def tell_starts(self) -> None:
        """Look after those whose deadline has passed, and tell the store how Pods started, and who lost some."""
        await self.controller._start_tracker.round()
        for _ in range(5):
            await self.controller._disruptions.send()
            await self.controller._outcome_sender.send()

    async def refund(self) -> None:
        await self.controller._refunds.round()

    async def repair(self) -> None:
        mending = asyncio.create_task(self.controller._drift_repair.round())
        while not mending.done():
            await self.controller._sighting_sender.send()
            await asyncio.sleep(0)
        await mending

    async def all(self) -> None:
        """Let the controller do all that it would do."""
        await self.watch_all()
        await self.tell()
        await self.tell_starts()
        await self.refund()
        await self.repair()

    def renew(self) -> None:
        """Write down how far the controller has come, as a renewal of the lease does."""
        self.lease = self.controller.continuity() or self.lease

    async def standing(self) -> set[str]:
        found: set[str] = set()
        for scope in await self.store.scopes(self.plan):
            found.update((await self.store.live(self.plan, scope))[0])
        return found

    async def used(self) -> int:
        """Return how many Pods the service's window counts."""
        look = await self.store.snapshot(self.plan)
        return next(use.used for uses in look.uses.values() for use in uses if use.window == "24h")

    async def waiting(self) -> list[str]:
        return [one.uid for one in await self.store.overdue(self.plan, 0, 10_000)]
