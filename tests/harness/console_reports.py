"""Reports on Pods, as `podgate explain` builds them, and ports that answer with them."""

from dataclasses import replace
from typing import Any

from tests.harness.console import make_ports, service
from webhook.commands.explain_target import ExplainTarget
from webhook.console.interface.document_reader import ConsolePorts, Explanation
from webhook.core.diagnosis import Fate, Report
from webhook.core.diagnosis.report import (
    AdmissionReport,
    ContainerReport,
    ReportSubject,
    RewrittenField,
    SchedulingReport,
    StartReport,
)
from webhook.core.quota import Holder
from webhook.core.reporting.limit_record import RecordedLimit
from webhook.core.reporting.queue_document import QueueRow

SUBJECT = ReportSubject("Pod", "shop", "web-5f-x2x9k", "1b4c0b5a-0000-4000-8000-000000000001", "ReplicaSet/web-5f")
QUOTA = RecordedLimit(Holder.SERVICE, "web", "1m", "pods", 50, 50, 1, over=True, free_at="2100-01-01T00:00:12.000Z")
FINE = RecordedLimit(Holder.SERVICE, "web", "1h", "cpu", "200", "164", "500m")
DENIED = Report(
    Fate.DENIED,
    "service web: pods in 1m: hard 50, used 50, asked 1",
    SUBJECT,
    remedy="wait, or `podgate quota grant web`",
    admission=AdmissionReport(
        "record", "Deny", "2026-12-01T03:59:01Z", "web", "services[0]", "9640bfdb", status_code=429
    ),
    quota=(QUOTA, FINE),
    rules=({"half": "validate", "stage": "quota", "found": "no room"},),
    unread={"nodes": "HTTP 403"},
)
ROW = QueueRow(
    queue="web",
    place=7,
    sla_class="gold",
    class_place=5,
    class_waiting=21,
    service="web",
    namespace="shop",
    name="web-5f-x2x9k",
    uid=SUBJECT.uid,
    since="2026-12-01T03:58:00Z",
    waiting_seconds=41,
    lifted=False,
    owner="ReplicaSet/web-5f",
    cause="QuotaExceeded",
    why="quota of web has no room",
    expected_at="2100-01-01T00:00:00Z",
    expires_at="2100-01-02T00:00:00Z",
)
WAITING = Report(
    Fate.WAITING_FOR_QUOTA,
    "5th of 21 in gold; may go from 00:00:00Z",
    SUBJECT,
    admission=AdmissionReport("record", "Queue", "2026-12-01T03:58:00Z", "web", "services[0]", "9640bfdb"),
    rewritten=(RewrittenField("nodeSelector[disk-type]", "placement.nodeSelector", "ssd", "overrides hdd"),),
    queue=ROW,
    scheduling=SchedulingReport(reason="SchedulingGated", message="by podgate.io/queue"),
)
RUNNING = Report(
    Fate.RUNNING,
    "on node-3 since 04:00:12Z",
    SUBJECT,
    scheduling=SchedulingReport(node="node-3"),
    start=StartReport("Running", (ContainerReport("web", "running"),)),
)


def with_report(report: Report | None, **unread: str) -> tuple[ConsolePorts, list[ExplainTarget]]:
    """Return ports that explain every object so, and the objects that were asked for."""
    asked: list[ExplainTarget] = []

    async def explain(target: ExplainTarget) -> Explanation:
        asked.append(target)
        return Explanation(report, unread)

    return replace(make_ports(service("web")), explain=explain), asked


def make_hostile_report(text: str) -> Report:
    """Return a report in which every text is this one."""
    fields: dict[str, Any] = {"source": text, "decision": text, "service": text, "message": text, "findings": (text,)}
    return Report(
        Fate.DENIED,
        text,
        ReportSubject(text, "shop", text, text, text),
        remedy=text,
        pods={text: 1},
        admission=AdmissionReport(**fields),
        gates=(text,),
        queue=ROW,
        unread={text: text},
    )
