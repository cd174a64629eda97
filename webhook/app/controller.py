"""Runner of `podgate controller`, from start to SIGTERM."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec
import uvloop

from webhook.adapters.clocks import SystemClock
from webhook.adapters.metrics import CONTENT_TYPE
from webhook.app.cluster import Sources, build_leader_lease, follow, report_events
from webhook.app.controller_loops import build_controller
from webhook.app.policy_source import follow_store_clock
from webhook.app.store import find_store_place
from webhook.app.supervision import Loop, ReadinessLog, run_forever, watch_stop_signals
from webhook.app.telemetry import Telemetry
from webhook.controller import Controller
from webhook.core.document import Purpose
from webhook.core.reporting.status import ControllerStatus, render_controller_status
from webhook.core.reporting.status_parts import StoreStatus
from webhook.errors import UserError
from webhook.fallback.breaker_ticker import LATE_US
from webhook.ports import Clock
from webhook.server.plain.health import build_plain_handler
from webhook.server.plain.queue import build_queue_page
from webhook.server.server import PlainServer
from webhook.settings import MEMORY, ControllerSettings, ListenAddress, is_in_cluster
from webhook.support.event_loop import EventLoop
from webhook.support.single_flight import SingleFlight

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

    from webhook.adapters.redis_store import RedisRolloutCounts, RedisStore

VERSION = version("podgate")
_STORE_SECONDS = 2.0
"""Deadline of the controller's store operations: no admission waits for them."""
_STANDBY_SECONDS = 5.0
"""Interval of the questions to the store while this process stands by: status and metrics are no older."""


class ControllerProcess:
    """The process of one controller replica, which leads or waits for the lease."""

    def __init__(
        self, settings: ControllerSettings, telemetry: Telemetry, clock: Clock, client: "ApiClient", sources: Sources
    ) -> None:
        self._settings = settings
        self._telemetry = telemetry
        self._logs = telemetry.logs
        self._clock = clock
        self._client = client
        self._sources = sources
        self._events = report_events(client, settings, telemetry)
        self._store, self._counts = _open_store(settings, telemetry, clock)
        follow_store_clock(sources.policies, self._store)
        self._lease = build_leader_lease(client, settings, telemetry, self._on_wait, self._build_notes)
        self._controller: Controller | None = None
        handler = build_plain_handler(
            self._list_unready,
            {CONTENT_TYPE: SingleFlight(self._render_metrics).get},
            SingleFlight(self._render_status).get,
            build_queue_page(lambda: telemetry.queue, lambda: self._lease.obstacle, clock.now_us),
        )
        self._plain = PlainServer(handler, telemetry.observer)
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, asked: asyncio.Event) -> None:
        """Lead whenever possible, until `asked` is set."""
        self._logs.adopt_standard_logging()
        await asyncio.gather(self._sources.policies.refresh(), self._sources.overrides.refresh())
        listen = self._settings.plain_listen
        await self._plain.listener.start(listen.host, listen.port)
        loops: tuple[Loop, ...] = (
            *self._sources.loops,
            self._store.follow,
            self._events,
            self._lead,
            self._check_store,
            *self._list_certificate_loops(),
        )
        self._tasks = [asyncio.create_task(run_forever(loop, self._logs)) for loop in loops]
        addresses = [str(ListenAddress(*address)) for address in self._plain.listener.addresses]
        self._logs.write_event("info", "listening", plain=addresses, not_ready=self._list_unready())
        self._tasks.append(
            asyncio.create_task(run_forever(ReadinessLog(self._list_unready, self._logs).run, self._logs))
        )
        await asked.wait()

    async def stop(self) -> None:
        """Cancel all loops, release the lease, then close what the last steps needed; telemetry is closed last."""
        self._logs.write_event("info", "stopping")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._lease.release()
        await self._plain.stop()
        await self._sources.close()
        await self._counts.close()
        await self._store.close()
        await asyncio.to_thread(self._telemetry.close)
        self._logs.write_event("info", "stopped")
        self._logs.close()

    def _list_certificate_loops(self) -> tuple[Loop, ...]:
        """Return the loop that maintains certificates. It needs neither policy nor store: new servers wait for it."""
        certificates = self._sources.certificates
        return (partial(certificates.run, lambda: not self._lease.obstacle),) if certificates is not None else ()

    async def _check_store(self) -> None:
        """Ask the store now and then while nothing else does, so that status and metrics say whether it responds."""
        while True:
            await asyncio.sleep(_STANDBY_SECONDS)
            compiled = self._sources.policies.get_current()
            if self._controller is None and compiled is not None:
                await self._store.check_lanes(compiled.list_breakers())

    async def _lead(self) -> None:
        await self._lease.lead(self._work)

    async def _work(self, found: Mapping[str, str]) -> None:
        """Reconcile until cancelled, resuming the former leader's Pod watch if possible."""
        from webhook.adapters.kubernetes import WatchedPods, find_store, parse_continuity  # noqa: PLC0415  it takes long to load

        resume = parse_continuity(found)
        self._logs.write_event("info", "leading", resumes=resume is not None)
        reports = self._telemetry.build_watch_reports("pods")
        called_on_loss: list[Callable[[], None]] = []
        self._store.on_loss = partial(_call_each, called_on_loss)
        self._store.losses.resume(find_store(found))
        watch = WatchedPods(self._client, self._clock, reports=reports, resume=resume)
        self._controller = build_controller(
            *(self._sources, watch, self._store, self._store.queue, self._counts, self._clock, self._telemetry),
            slots=self._store.slots,
            ticks=True,
            on_loss=called_on_loss.append,
        )
        try:
            await self._controller.run()
        finally:
            self._controller = None  # the next leader records its own progress
            called_on_loss.clear()
            self._telemetry.metrics.ledger.set_watched(None)
            self._telemetry.metrics.failing_writes.end()
            for resource in ("pods", "events", "wakes"):
                self._telemetry.forget_watch(resource)
            self._logs.write_event("warning", "no longer leading", reason=self._lease.obstacle or "ending")

    def _on_wait(self, reason: str) -> None:
        self._logs.write_event("info", "standing by", reason=reason)

    def _build_notes(self) -> Mapping[str, str]:
        from webhook.adapters.kubernetes import make_annotations  # noqa: PLC0415  as above

        continuity = self._controller.continuity() if self._controller is not None else None
        return make_annotations(continuity, self._store.losses.describe())

    def _list_unready(self) -> list[str]:
        """Return the reasons why this replica is not ready; waiting for the lease is none."""
        return [*([self._lease.trouble] if self._lease.trouble else []), *self._sources.list_unready()]

    async def _render_metrics(self) -> bytes:
        self._telemetry.metrics.health.update(ready=not self._list_unready(), leads=not self._lease.obstacle)
        return await asyncio.to_thread(self._telemetry.metrics.render)

    async def _render_status(self) -> bytes:
        sources, certificates = self._sources, self._sources.certificates
        status = ControllerStatus(
            version=VERSION,
            waits_for=self._lease.obstacle,
            source=sources.name,
            policy=sources.policies.get_loaded(),
            loaded_at_us=sources.policies.loaded_at_us,
            errors=sources.policies.list_errors(),
            store=StoreStatus(
                "redis",
                self._telemetry.store_trouble,
                servers=await self._store.servers(),
                place=find_store_place(self._settings.store, self._settings.cluster),
            ),
            watches=self._telemetry.watches,
            certificates=certificates.build_status() if certificates is not None else None,
            not_ready=self._list_unready(),
            webhooks=self._telemetry.webhooks,
            queues=queue.list_depths() if (queue := self._telemetry.queue) is not None else None,
            rollout=sources.policies.rollout.view,
        )
        return msgspec.json.encode(render_controller_status(status))


def _call_each(functions: Iterable[Callable[[], None]]) -> None:
    for call in functions:
        call()


def _open_store(
    settings: ControllerSettings, telemetry: Telemetry, clock: Clock
) -> "tuple[RedisStore, RedisRolloutCounts]":
    from webhook.adapters import redis_store  # noqa: PLC0415  its library takes long to load

    transport = redis_store.open_transport(settings.store, settings.store_files)
    store = redis_store.RedisStore(
        transport,
        settings.cluster,
        clock,
        telemetry.build_store_reports(),
        deadline_seconds=_STORE_SECONDS,
        late_us=LATE_US,
        announcement_reports=telemetry.build_announcement_reports(),
    )
    return store, redis_store.RedisRolloutCounts(transport, settings.cluster, store.now_us)


def run(settings: ControllerSettings) -> None:
    """Lead whenever possible, until SIGTERM or SIGINT; UserError without a shared store or a cluster."""
    if settings.store == MEMORY:
        raise UserError(
            "--store: memory: with --store memory `podgate serve` does this itself",
            "give the --store redis://HOST:6379/0 that the servers share",
        )
    if settings.kubeconfig is None and not is_in_cluster(os.environ):
        raise UserError(
            "--kubeconfig: missing, and this is no Pod with a service account's token: there are no Pods to watch",
            "name the kubeconfig of the cluster whose Pods the servers review",
        )
    uvloop.run(_lead_until_stopped(settings), loop_factory=EventLoop)


async def _lead_until_stopped(settings: ControllerSettings) -> None:
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    clock, telemetry = SystemClock(), Telemetry(settings, VERSION)
    client = await kubernetes.connect(settings.kubeconfig)
    purpose = Purpose.from_setup(alone=False, in_process=False)
    sources = await follow(client, settings, telemetry, clock, purpose, keeps_last_good=False)
    controlling = ControllerProcess(settings, telemetry, clock, client, sources)
    asked, _ = watch_stop_signals()
    try:
        await controlling.run(asked)
    finally:
        await controlling.stop()
