"""Documents of single pages: the queue, a service's decisions, and nodes, each read once for all that ask."""

import asyncio
import re
from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from webhook.commands.clients.status_client import parse_queue
from webhook.commands.explain_target import ExplainTarget
from webhook.console.interface.document_reader import DocumentReader, Explanation, ReadablePort
from webhook.core.console_views.outcome_counts import OutcomeCount, list_outcomes
from webhook.core.console_views.refusals import RecordPage, ServiceRecords
from webhook.core.diagnosis import Report
from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.reporting.node_document import NodeDocument
from webhook.core.reporting.queue_document import QueueDocument
from webhook.errors import UserError

_NO_LEADER = "the process that releases Pods is not known here"
_LEADER_REMEDY = "give --server the plain port of the leader, or start podgate console with a kubeconfig"
_DENIED_MAX, _NEWEST_MAX = 200, 100
_SINCE = "15m"
_METRICS_PERIOD_US = 15_000_000
_OWNERS_MAX = 1_000
_BY_RECORDS = {"cluster": "this console explains by decision records alone"}
_EXTENDER_REMEDY = (
    "nodes are known to a scheduler extender: start one with `podgate extender`, and give podgate console its decision"
    " port by --extender; in a cluster it is found by the kubeconfig"
)


async def read_queue(reader: DocumentReader, service: str = "") -> QueueDocument:
    """Return waiting Pods, of one service or all. UserError: no process that releases Pods answers."""
    path = f"/queue?{urlencode({'service': service})}"

    async def read() -> QueueDocument:
        ports, remedy = reader.ports, ""
        reasons = [ports.missing["leader"]] if "leader" in ports.missing else []
        for port in filter(None, (ports.leader, ports.plain)):
            try:
                document = parse_queue(await port.get(path), port.name)
            except UserError as error:
                reasons, remedy = [*reasons, str(error)], remedy or error.remedy
                continue
            if document.leads:
                return document
            reasons.append(document.waits_for)
        reason = "; ".join(filter(None, dict.fromkeys(reasons)))
        raise UserError(f"{_NO_LEADER}{f': {reason}' if reason else ''}", remedy or _LEADER_REMEDY)

    return await reader.read_once(path, read)


async def read_records(reader: DocumentReader, service: str) -> ServiceRecords:
    """Return the newest decisions and denials of a service; with the reason if they cannot be read."""

    async def read() -> ServiceRecords:
        port = reader.ports.decisions
        if port is None:
            return ServiceRecords(error=reader.ports.missing.get("decisions", "the decision port was not found"))
        found = []
        for asked in ({"denied": "true", "since": _SINCE, "limit": _DENIED_MAX}, {"limit": _NEWEST_MAX}):
            query = urlencode({"service": service, **asked})
            try:
                body = await port.get(f"/api/v1/decisions?{query}")
                found.append(msgspec.json.decode(body, type=RecordPage))
            except (UserError, *UNREADABLE_JSON) as error:
                return ServiceRecords(error=f"decisions cannot be read: {' '.join(str(error).split())}")
        denied, newest = found
        return ServiceRecords(denied, newest, denied.error or newest.error or "")

    return await reader.read_once(f"records {service}", read)


async def read_nodes(reader: DocumentReader, path: str) -> tuple[str, NodeDocument]:
    """Return the name of an extender, and its document at a path. UserError: none answers."""

    async def read() -> tuple[str, NodeDocument]:
        extender = reader.ports.extender
        if extender is None:
            raise UserError("this console asks no extender", _EXTENDER_REMEDY)
        name, body = await extender(path)
        try:
            return name, msgspec.json.decode(body, type=NodeDocument)
        except UNREADABLE_JSON:
            remedy = "give --extender the URL of the decision port (--decision-listen) of podgate extender"
            raise UserError(f"{name}: answers, but not as Podgate's extender", remedy) from None

    return await reader.read_once(path, read)


async def read_outcomes(reader: DocumentReader, service: str) -> tuple[OutcomeCount, ...]:
    """Return the outcomes that the server has counted since its start; none if its metrics cannot be read."""

    async def read() -> Mapping[str, tuple[OutcomeCount, ...]]:
        try:
            body = await reader.ports.plain.get("/metrics")
        except UserError:
            return {}
        return await asyncio.to_thread(list_outcomes, body.decode(errors="replace"))

    period = reader.now_us() // _METRICS_PERIOD_US  # the metrics of all services are long
    return (await reader.read_once(f"outcomes {period}", read)).get(service, ())


class _ReportPage(Struct, frozen=True):
    report: Report | None = None


async def explain(reader: DocumentReader, target: ExplainTarget) -> Explanation:
    """Explain an object as `podgate explain` does; else by the decision port's records. UserError: neither is there."""
    ports = reader.ports
    async with reader.explaining:
        if ports.explain is not None:
            return await ports.explain(target)
        if ports.decisions is not None:
            return await _explain_by_records(ports.decisions, target)
    raise UserError("nothing can be explained: the decision port was not found", ports.missing.get("decisions", ""))


async def _explain_by_records(port: ReadablePort, target: ExplainTarget) -> Explanation:
    try:
        asked = await _find_records_query(port, target)
        if not asked:
            return Explanation(None, _BY_RECORDS)
        body = await port.get(f"/api/v1/explain?{urlencode(asked)}")
        return Explanation(msgspec.json.decode(body, type=_ReportPage).report, _BY_RECORDS)
    except UNREADABLE_JSON as error:
        remedy = "give --decisions the URL of the decision port (--decision-listen) of podgate serve"
        raise UserError(f"{port.name}: answers, but not as Podgate's decision port: {error}", remedy) from None


async def _find_records_query(port: ReadablePort, target: ExplainTarget) -> Mapping[str, str]:
    """Return what to ask the decision port; empty if no record is of a controller that the workload has made."""
    if target.uid:
        return {"uid": target.uid}
    if target.is_pod:
        return {"namespace": target.namespace, "name": target.name}
    if target.kind is None or not target.kind.makes:
        return {"namespace": target.namespace, "owner": target.name}
    query = urlencode({"namespace": target.namespace, "limit": _OWNERS_MAX})
    records = msgspec.json.decode(await port.get(f"/api/v1/decisions?{query}"), type=RecordPage).decisions
    made = re.compile(re.escape(target.name) + r"-[a-z0-9]+")
    owners = (record.owner for record in records if record.owner is not None)
    newest = next((one for one in owners if one.kind == target.kind.makes and made.fullmatch(one.name)), None)
    return {} if newest is None else {"namespace": target.namespace, "owner": newest.uid}
