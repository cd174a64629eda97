"""Runner of `podgate serve`, from start to SIGTERM."""

import asyncio
import sys
from functools import partial
from importlib.metadata import version

import uvloop

from webhook.adapters.clocks import SystemClock
from webhook.app.callers import open_callers
from webhook.app.client_identity import open_client_authentication
from webhook.app.cluster import Sources, open_sources
from webhook.app.console import ServerConsole
from webhook.app.controller_loops import build_controller, build_manual_loops
from webhook.app.decisions import open_decisions
from webhook.app.policy_source import build_policy_webhook, follow_store_clock
from webhook.app.rollout import open_candidate_parts
from webhook.app.serving_tls import open_tls
from webhook.app.status_page import StatusPage
from webhook.app.store import build_slot_chooser, open_store
from webhook.app.supervision import Loop, ReadinessLog, run_forever, watch_stop_signals
from webhook.app.telemetry import Telemetry
from webhook.app.telemetry.loop_reports import build_overload_monitor
from webhook.authentication.peer_recheck import PeerRecheck
from webhook.errors import UserError
from webhook.fallback.admission_queue import AdmissionQueue
from webhook.fallback.breaker_ticker import BreakerTicker
from webhook.interceptor import Interceptor
from webhook.outcomes.aggregator import OutcomeAggregator
from webhook.outcomes.endpoint import OutcomeEndpoint
from webhook.ports import Clock
from webhook.server.call_endpoint import CallEndpoint, CallLimits
from webhook.server.connection_table import ConnectionGuard, ConnectionLimits, ConnectionTable
from webhook.server.http_messages import Handler
from webhook.server.listener import Listener
from webhook.server.plain.health import build_plain_handler
from webhook.server.plain.queue import build_queue_page
from webhook.server.request_parser import require_compiled_parser
from webhook.server.routes import build_admission_routes
from webhook.server.server import Server, ServerTimeouts
from webhook.settings import MEMORY, ClientIdentity, ListenAddress, Settings
from webhook.support.event_loop import EventLoop
from webhook.support.process_memory import build_trim_loops

VERSION = version("podgate")
_DRAINING = "draining"
_SWITCH_SECONDS = 0.001
"""Thread switch interval: bounds how long a busy thread (a large Pod, a scrape) delays the loop."""
_PORT_SECONDS = 2.0
_LEASE_PATIENCE_SECONDS = 30.0
"""Longer than another server takes to release the lease at shutdown, and than the lease of a crashed one lasts."""
_CONTROLLER_LEADS = "a controller releases Pods: the one that Lease podgate-system/podgate-leader names"
_LEASE_REMEDY = (
    "with --store memory only one server may run: run one replica, or let all share a --store redis://HOST:6379/0"
)


class ServerProcess:
    """The process of one server with all its parts; UserError for an invalid file."""

    def __init__(self, settings: Settings, telemetry: Telemetry, clock: Clock, sources: Sources) -> None:
        self._settings, self._sources = settings, sources
        self._clock, self._telemetry, self._logs = clock, telemetry, telemetry.logs
        observer = telemetry.observer
        self._tls = open_tls(settings, telemetry)
        self._store = open_store(settings, telemetry, clock, sources.servers)
        counters, book_later = self._store.counters, self._store.book_later
        follow_store_clock(sources.policies, counters, settings.store)
        self._overload = monitor = build_overload_monitor(settings, telemetry, clock)
        queue = AdmissionQueue(counters, self._store.queue, clock, monitor) if not sources.is_alone else None
        self._interceptor = Interceptor(
            *(sources.policies, counters, sources.namespaces, observer, book_later, telemetry.sample),
            queue=queue,
            pod_slots=build_slot_chooser(self._store, telemetry, sources.slot_owners),
            is_releaser=sources.is_releaser,
        )
        is_reduced = settings.client_identity is ClientIdentity.REDUCED
        self._callers = None if is_reduced else open_callers(settings, telemetry, clock, sources)
        self._authentication = open_client_authentication(settings, telemetry, self._callers)
        telemetry.metrics.set_reduced_mode(on=is_reduced)
        limits = CallLimits(settings.max_body_bytes, settings.body_timeout_seconds, settings.max_in_flight)
        reviewer = build_policy_webhook(settings, sources.policies, observer, sources.purpose)
        outcome_reports = telemetry.build_outcome_reports()
        self._outcomes = OutcomeAggregator(counters, clock, observer, outcome_reports)
        receiver = OutcomeEndpoint(self._sources.policies.get_current, self._outcomes, clock, outcome_reports)
        self._guard = self._build_guard()
        routes = build_admission_routes(self._interceptor, reviewer, receiver)
        endpoint = CallEndpoint(routes, self._authentication.strategy, self._guard, observer, limits)
        telemetry.metrics.watch_in_flight(lambda: endpoint.in_flight)
        telemetry.watch_namespaces(sources.namespaces.find_labels)
        self._decisions = open_decisions(telemetry, sources, self._store)
        self._candidate = open_candidate_parts(telemetry, sources, self._store)
        self._shown = shown = StatusPage(
            version=VERSION,
            clock=clock,
            sources=sources,
            store=self._store,
            interceptor=self._interceptor,
            telemetry=telemetry,
            tls=self._tls,
            obstacles=self._list_obstacles,
            authentication=self._authentication,
            decisions=self._decisions.status,
            overload=monitor,
            shadow=self._candidate.shadow,
        )
        pages = build_plain_handler(
            shown.list_unready, shown.metrics, shown.status, self._build_queue_page(), self._authentication.warning
        )
        shown_pages = observer.wrap_after_reviews(pages), observer.wrap_after_reviews(self._decisions.handler)
        self._console = ServerConsole(settings, sources.reviews, self._logs, *shown_pages)
        self.server = Server(
            endpoint,
            self._guard,
            *shown_pages,
            observer,
            ServerTimeouts(settings.keep_alive_seconds, settings.drain_seconds, settings.grace_seconds),
        )
        self._readiness = ReadinessLog(shown.list_unready, self._logs, leaving=_DRAINING)
        self._tasks: list[asyncio.Task[None]] = []

    def _build_queue_page(self) -> Handler:
        """Return the page of waiting Pods, which are known where they are released: here with counters in memory."""
        lease = self._sources.lease
        elsewhere = "Pods wait only in a cluster" if self._sources.is_alone else _CONTROLLER_LEADS
        return build_queue_page(
            lambda: self._telemetry.queue,
            lambda: elsewhere if lease is None else lease.obstacle,
            self._clock.now_us,
        )

    def _build_guard(self) -> ConnectionGuard:
        settings, tls = self._settings, self._tls.files
        limits = ConnectionLimits(
            settings.max_connections,
            settings.handshake_timeout_seconds,
            settings.header_timeout_seconds,
            settings.max_connection_age_seconds,
            silence_seconds=settings.keep_alive_seconds,
        )
        return ConnectionGuard(ConnectionTable(limits, lambda: tls.context), PeerRecheck(lambda: tls.value.trust))

    async def start(self) -> None:
        """Load policy and overrides, start the background loops, and serve health on the plain port."""
        self._logs.adopt_standard_logging()
        await asyncio.gather(self._sources.policies.refresh(), self._sources.overrides.refresh())
        plain = self._settings.plain_listen
        await self.server.plain.start(plain.host, plain.port)
        await self._console.start()
        if missing := await self._open_decision_port():
            self._logs.write_event("error", "decisions are not served", reason=missing)
        ticking = BreakerTicker(
            self._store.counters,
            self._clock,
            self._sources.policies.get_current,
            self._telemetry.observer.on_transition,
        )
        loops: tuple[Loop, ...] = (
            *(*self._sources.loops, *self._store.loops, *self._candidate.loops),
            *(self._callers.loops if self._callers is not None else ()),
            *self._authentication.loops,
            *self._tls.loops,
            *build_trim_loops(),
            *self._decisions.loops,
            self._await_decision_port,
            self._console.run,
            self._outcomes.run,
            self._overload.run,
            ticking.run,
        )
        self._tasks = [asyncio.create_task(run_forever(loop, self._logs)) for loop in loops]

    async def _open_decision_port(self) -> str:
        """Serve decisions; return why that failed, "" if it succeeded."""
        listen = self._settings.decision_listen
        try:
            await self.server.decisions.start(listen.host, listen.port)
        except UserError as error:
            return str(error)
        return ""

    async def _await_decision_port(self) -> None:
        """Try again while another process has the decision port. Admissions continue without it."""
        while not self.server.decisions.addresses:
            await asyncio.sleep(_PORT_SECONDS)
            if not await self._open_decision_port():
                self._logs.write_event("info", "decisions are served", decisions=_list_addresses(self.server.decisions))
        await asyncio.Event().wait()

    async def serve(self, asked: asyncio.Event) -> None:
        """Serve admission requests until `asked` is set. UserError: another server with in-memory counters runs."""
        serving, ending = asyncio.create_task(self._run_admission()), asyncio.create_task(asked.wait())
        await asyncio.wait((serving, ending), return_when=asyncio.FIRST_COMPLETED)
        for task in (serving, ending):
            task.cancel()
        [outcome, _] = await asyncio.gather(serving, ending, return_exceptions=True)
        if isinstance(outcome, Exception):
            self._logs.write_event("error", "exiting", reason=str(outcome))
            raise outcome

    async def _run_admission(self) -> None:
        lease = self._sources.lease
        if lease is not None:
            await lease.take(_LEASE_PATIENCE_SECONDS, _LEASE_REMEDY)
        listen = self._settings.listen
        await self.server.admission.start(listen.host, listen.port)
        self._logs.write_event(
            "info",
            "listening",
            admission=_list_addresses(self.server.admission),
            plain=_list_addresses(self.server.plain),
            decisions=_list_addresses(self.server.decisions),
            **({"console": self._console.addresses} if self._console.addresses else {}),
            not_ready=self._shown.list_unready(),
        )
        self._tasks.append(asyncio.create_task(run_forever(self._readiness.run, self._logs)))
        self._begin_to_reconcile()
        if self._authentication.warning:
            self._logs.write_event(
                "warning",
                f"{self._authentication.warning}: any client that reaches this port and knows the path is accepted",
            )
        if self._settings.store == MEMORY:
            unseen = "" if lease is not None else "; without a cluster it cannot see whether other servers count too"
            self._logs.write_event("warning", f"counters are in memory and are lost when this process ends{unseen}")
        await (lease.keep(_LEASE_REMEDY) if lease is not None else asyncio.Event().wait())

    def _begin_to_reconcile(self) -> None:
        """Start the controller's loops if there is no controller process."""
        pods, ledger, loops = self._sources.pods, self._store.ledger, tuple[Loop, ...]()
        if pods is not None:
            parts = pods, ledger, self._store.queue, self._store.counts, self._clock
            loops = (build_controller(self._sources, *parts, self._telemetry, slots=self._store.slots).run,)
        elif self._sources.is_alone:
            loops = build_manual_loops(self._sources, ledger, self._telemetry)
        lease, certificates = self._sources.lease, self._sources.certificates
        if lease is not None and certificates is not None:
            loops = (*loops, partial(certificates.run, lambda: not lease.obstacle))
        self._tasks += [asyncio.create_task(run_forever(loop, self._logs)) for loop in loops]

    def _list_obstacles(self) -> list[str]:
        """Return the reasons not to be ready: no lease, draining, or unverifiable tokens of the API server."""
        lease = self._sources.lease
        leaving = [_DRAINING] if self._guard.is_draining else []
        unknown = self._callers.list_unready() if self._callers is not None else []
        return [*([lease.obstacle] if lease is not None and lease.obstacle else []), *leaving, *unknown]

    async def stop(self, hurry: asyncio.Event) -> None:
        """Drain until `hurry` is set, then stop what the last requests may need; telemetry is closed last.

        The lease is released first: the next server starts with empty counters in any case.
        """
        self._logs.write_event("info", "draining")
        await self._console.stop()
        if self._sources.lease is not None:
            await asyncio.gather(self._sources.lease.release(), self.server.stop(hurry))
        else:
            await self.server.stop(hurry)
        await self._outcomes.flush()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._telemetry.observer.deliver()
        if self._decisions.flush is not None:
            await self._decisions.flush()
        await self._sources.close()
        await self._store.close()
        await asyncio.to_thread(self._telemetry.close)
        self._logs.write_event("info", "stopped")
        self._logs.close()


def _list_addresses(listener: Listener) -> list[str]:
    return [str(ListenAddress(*address)) for address in listener.addresses]


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; a second one ends the drain at once."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    uvloop.run(_serve_until_stopped(settings), loop_factory=EventLoop)


async def _serve_until_stopped(settings: Settings) -> None:
    require_compiled_parser()
    asked, asked_again = watch_stop_signals()
    clock, telemetry = SystemClock(), Telemetry(settings, VERSION)
    sources = await open_sources(settings, telemetry, clock)
    try:
        podgate = ServerProcess(settings, telemetry, clock, sources)
        await podgate.start()
    except UserError:
        await sources.close()  # else aiohttp adds to the error that a session was not closed
        raise
    try:
        await podgate.serve(asked)
    finally:
        await podgate.stop(asked_again)
