"""Composition of decision records: the ring of this server, the records in Redis, and the port that serves both."""

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from webhook.adapters.policy_process.parent import PolicyProcess
from webhook.app.cluster import Sources
from webhook.app.store import StoreBackend
from webhook.app.supervision import Loop
from webhook.app.telemetry import Telemetry
from webhook.core.reporting.status_parts import DecisionsStatus
from webhook.decisions.policy_documents import CompiledPolicies, PolicyDocuments
from webhook.decisions.ring import DecisionRing
from webhook.decisions.search import DecisionSearch
from webhook.decisions.writer import DecisionWriter
from webhook.ports import WatchReports
from webhook.server.http_messages import Handler
from webhook.server.plain.decisions import build_decision_handler
from webhook.server.plain.explanations import EXPLAIN, build_explanation_page
from webhook.settings import is_in_cluster


@dataclass(frozen=True, slots=True)
class DecisionRecords:
    """The port's handler, the state for the status page, the loops that write, and the last write at shutdown."""

    handler: Handler
    status: Callable[[], DecisionsStatus]
    loops: tuple[Loop, ...] = ()
    flush: Loop | None = None


def open_decisions(telemetry: Telemetry, sources: Sources, store: StoreBackend) -> DecisionRecords:
    """Record each review from now on, and return the parts that show and write the records."""
    ring, documents = DecisionRing(_choose_replica_name()), PolicyDocuments()
    ring.labels = sources.namespaces.find_labels
    sources.policies.rollout.keep_document = documents.keep
    telemetry.observer.join(ring)
    search = DecisionSearch(ring, documents, store.decisions)
    policies = CompiledPolicies(search.policy, PolicyProcess())
    explain = build_explanation_page(search, policies.get, lambda: time.time_ns() // 1000)
    handler = build_decision_handler(search, _read_now_ms, {EXPLAIN: explain})
    telemetry.metrics.watch_decision_records(lambda: {"written": 0, "dropped": ring.dropped})
    if store.decisions is None:
        return DecisionRecords(handler, lambda: DecisionsStatus(len(ring)))
    writer = DecisionWriter(store.decisions, documents, _build_reports(telemetry))
    ring.on_record = writer.put

    def count_records() -> dict[str, int]:
        counts = writer.count_records()
        return {"written": counts["written"], "dropped": counts["dropped"] + ring.dropped}

    telemetry.metrics.watch_decision_records(count_records)

    def status() -> DecisionsStatus:
        counts = count_records()
        return DecisionsStatus(len(ring), counts["written"], counts["dropped"], writer.error)

    return DecisionRecords(handler, status, (writer.run,), writer.flush)


def _build_reports(telemetry: Telemetry) -> WatchReports:
    """Return the callbacks for failures to write records."""

    def on_trouble(reason: str) -> None:
        telemetry.logs.write_event("warning", "decision records are not written to the store", reason=reason)

    def on_over(reason: str) -> None:
        telemetry.logs.write_event("info", "decision records are written to the store again", reason=reason)

    return WatchReports(lambda: None, on_trouble, on_over)


def _choose_replica_name() -> str:
    """Return the name of this Pod; elsewhere a name that other servers of the same machine do not have."""
    name = socket.gethostname()
    return name if is_in_cluster(os.environ) else f"{name}-{os.getpid()}"


def _read_now_ms() -> int:
    return time.time_ns() // 1_000_000
