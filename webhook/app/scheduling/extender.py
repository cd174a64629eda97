"""Runner of `podgate extender`, from start to SIGTERM."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec
import uvloop

from webhook.adapters.clocks import SystemClock, WallClock
from webhook.adapters.metrics import CONTENT_TYPE
from webhook.adapters.node_loads import MetricsApiLoads, PrometheusLoads
from webhook.app.policy_source import FollowedPolicy, follow_policy
from webhook.app.scheduling.needed_watch import NeededWatch, is_tried
from webhook.app.scheduling.reports import SchedulingReports
from webhook.app.serving_tls import open_tls
from webhook.app.supervision import ReadinessLog, run_forever, watch_stop_signals
from webhook.app.telemetry import Telemetry
from webhook.authentication.peer_recheck import PeerRecheck
from webhook.authentication.scheduler_certificate import CertificateStrategy
from webhook.core.document import Purpose
from webhook.core.policy_fields.nodes import LoadSource, Nodes
from webhook.extender.extender import Extender
from webhook.extender.load_refresher import LoadRefresher
from webhook.extender.unschedulable_pod_events import UnschedulablePodEvents
from webhook.extender.wake_loop import WakeLoop
from webhook.ports import PodEventHandler
from webhook.ports.scheduling import NodeLoads
from webhook.server.call_endpoint import CallEndpoint, CallLimits
from webhook.server.connection_table import ConnectionGuard, ConnectionLimits, ConnectionTable
from webhook.server.plain.extender_pages import NODES, SCHEDULING, build_node_page, build_scheduling_page
from webhook.server.plain.health import build_plain_handler
from webhook.server.plain.local_pages import Page, build_local_handler
from webhook.server.routes import build_extender_routes
from webhook.server.server import Server, ServerTimeouts
from webhook.settings import ExtenderSettings, ListenAddress
from webhook.support.event_loop import EventLoop
from webhook.support.single_flight import SingleFlight

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

VERSION = version("podgate")
_ZONES = "noderesourcetopologies"
_BODY_SECONDS = 5.0
_TIMEOUTS = ServerTimeouts(keep_alive_seconds=120.0, drain_seconds=5.0, grace_seconds=2.0, accept_seconds=2.0)
"""The scheduler has few connections, or none: until the Service leaves this replica out, new ones are sent to it."""


class ExtenderProcess:
    """The process of one extender replica; UserError for an invalid file."""

    def __init__(
        self, settings: ExtenderSettings, telemetry: Telemetry, client: "ApiClient", sources: FollowedPolicy
    ) -> None:
        from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

        self._settings = settings
        self._telemetry = telemetry
        self._logs = telemetry.logs
        self._sources = sources
        self._client = client
        self._node_metrics = kubernetes.NodeMetrics(client)
        self._tls = open_tls(settings, telemetry)
        policy, reports = sources.policies.get_current, SchedulingReports(telemetry, time.time)
        # A policy may ask for zones while calls are answered, before the next list.
        self._extender = Extender(policy, reports, time.time, lambda: is_tried(telemetry.watches.get(_ZONES)))
        table = self._extender.table
        waiting = self._extender.waiting
        telemetry.metrics.scheduling.begin(table.count_nodes_by_source, self._extender.list_services, waiting.__len__)
        refresher = self._refresher = LoadRefresher(
            table, policy, self._open_source, time.time, reports.build_refresh_reports()
        )
        wake = WakeLoop(
            self._extender,
            kubernetes.StorageClassWake(client),
            kubernetes.WakeConfigMap(client),
            lambda: not self._list_unready(),
            reports.build_wake_reports(),
        )
        self._was_ready = False
        watches, self._needed = self._open_watches(UnschedulablePodEvents(table.index, waiting, wake.on_answered))
        self._guard = self._build_guard()
        endpoint = CallEndpoint(
            build_extender_routes(self._extender, reports.on_call_ended),
            CertificateStrategy(settings.scheduler_names, WallClock()),
            self._guard,
            telemetry.observer,
            CallLimits(settings.max_body_bytes, _BODY_SECONDS, settings.max_in_flight),
        )
        plain = build_plain_handler(
            self._list_unready,
            {CONTENT_TYPE: SingleFlight(self._render_metrics).get},
            SingleFlight(self._render_status).get,
        )
        pages = build_local_handler(self._build_pages(reports).get)
        self.server = Server(endpoint, self._guard, plain, pages, telemetry.observer, _TIMEOUTS)
        self._loops = (
            *sources.loops,
            *self._tls.loops,
            *watches,
            *(needed.run for needed in self._needed),
            refresher.run,
            wake.run,
        )
        self._readiness = ReadinessLog(self._list_unready, self._logs)
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, asked: asyncio.Event) -> None:
        """Answer calls until `asked` is set."""
        self._logs.adopt_standard_logging()
        await self._sources.policies.refresh()
        server, settings = self.server, self._settings
        await server.plain.start(settings.plain_listen.host, settings.plain_listen.port)
        await server.decisions.start(settings.decision_listen.host, settings.decision_listen.port)
        self._tasks = [asyncio.create_task(run_forever(loop, self._logs)) for loop in self._loops]
        await server.admission.start(settings.listen.host, settings.listen.port)
        self._logs.write_event(
            "info",
            "listening",
            extender=[str(ListenAddress(*address)) for address in server.admission.addresses],
            plain=[str(ListenAddress(*address)) for address in server.plain.addresses],
            decisions=[str(ListenAddress(*address)) for address in server.decisions.addresses],
            not_ready=self._list_unready(),
        )
        self._tasks.append(asyncio.create_task(run_forever(self._readiness.run, self._logs)))
        await asked.wait()

    async def stop(self, hurry: asyncio.Event) -> None:
        """Drain until `hurry` is set, then stop what the last calls needed; telemetry is closed last."""
        self._logs.write_event("info", "draining")
        await self.server.stop(hurry)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()
        await asyncio.to_thread(self._telemetry.close)
        self._logs.write_event("info", "stopped")
        self._logs.close()

    def _build_pages(self, reports: SchedulingReports) -> dict[str, Page]:
        nodes = build_node_page(self._extender, time.time, self._telemetry.resources.list_unread)
        return {NODES: nodes, SCHEDULING: build_scheduling_page(reports.records)}

    def _build_guard(self) -> ConnectionGuard:
        tls = self._tls.files
        limits = ConnectionLimits(self._settings.max_connections, silence_seconds=_TIMEOUTS.keep_alive_seconds)
        return ConnectionGuard(ConnectionTable(limits, lambda: tls.context), PeerRecheck(lambda: tls.value.trust))

    def _open_watches(
        self, pod_events: PodEventHandler
    ) -> tuple[tuple[Callable[[], Awaitable[None]], ...], tuple[NeededWatch, ...]]:
        """Return the loops that follow objects of the cluster, and the watches that only some clusters need."""
        from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

        client, table, build_reports = self._client, self._extender.table, self._telemetry.build_watch_reports
        pods = kubernetes.WatchedPods(client, SystemClock(), reports=build_reports("pods"), with_system=True)
        nodes = kubernetes.WatchedNodes(client, table.index, reports=build_reports("nodes"))
        numa = kubernetes.WatchedNumaTopologies(client, table.numa, reports=build_reports(_ZONES))
        nominated = table.index.nominated
        claims = kubernetes.WatchedClaims(client, nominated, reports=build_reports("persistentvolumeclaims"))

        async def follow_numa() -> None:
            table.numa.counts_pods = True
            if table.index.has_pods:
                pods.list_again()
            await numa.run()

        def need(resource: str, watch: Callable[[], Awaitable[None]], is_needed: Callable[[], bool]) -> NeededWatch:
            return NeededWatch(resource, watch, is_needed, lambda: self._telemetry.watches.get(resource))

        return (nodes.run, lambda: pods.run(pod_events)), (
            need(_ZONES, follow_numa, lambda: self._extender.needs_numa),
            need("persistentvolumeclaims", claims.run, lambda: nominated.needs_claims),
        )

    def _open_source(self, name: str, source: LoadSource, nodes: Nodes) -> NodeLoads | None:
        if source.requests is not None:
            return None
        self._telemetry.metrics.scheduling.open_source(name)
        if source.prometheus is not None:
            return PrometheusLoads(
                name, source.prometheus, nodes, lambda: self._extender.needs_deviation, self._settings.prometheus_files
            )
        return MetricsApiLoads(name, self._node_metrics.list_metrics, nodes)

    def _list_unready(self) -> list[str]:
        """Return the reasons why calls cannot be answered. A source of load that failed is none."""
        listed = self._extender.is_ready
        draining = ["draining"] if self._guard.is_draining else []
        reasons = [
            *self._sources.list_unready(),
            *self._tls.list_unready(),
            *([] if listed else ["Nodes and Pods are not listed yet"]),
            *([] if self._refresher.has_read else ["the load of nodes is not read yet"]),
            *draining,
        ]
        if not self._was_ready:  # a need that comes later comes to all replicas at once
            reasons += [reason for needed in self._needed for reason in needed.list_unready()]
        self._was_ready = self._was_ready or not reasons
        return reasons

    async def _render_metrics(self) -> bytes:
        metrics = self._telemetry.metrics
        metrics.health.update(ready=not self._list_unready(), leads=None)
        metrics.set_certificates(self._tls.read_expiry_seconds())
        return await asyncio.to_thread(metrics.render)

    async def _render_status(self) -> bytes:
        policy = self._sources.policies.get_current()
        return msgspec.json.encode(
            {
                "version": VERSION,
                "policy": {"source": self._sources.name, "hash": policy.hash if policy is not None else ""},
                "nodes": self._extender.table.count_nodes_by_source(),
                "notReady": self._list_unready(),
            }
        )


def run(settings: ExtenderSettings) -> None:
    """Answer calls until SIGTERM or SIGINT; a second one ends the drain at once."""
    uvloop.run(_answer_until_stopped(settings), loop_factory=EventLoop)


async def _answer_until_stopped(settings: ExtenderSettings) -> None:
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    telemetry = Telemetry(settings, VERSION)
    client = await kubernetes.connect(settings.kubeconfig)
    sources = follow_policy(client, settings, telemetry, SystemClock(), Purpose.SCHEDULE, keeps_last_good=False)
    asked, asked_again = watch_stop_signals()
    process = ExtenderProcess(settings, telemetry, client, sources)
    try:
        await process.run(asked)
    finally:
        await process.stop(asked_again)
