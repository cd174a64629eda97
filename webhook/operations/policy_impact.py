"""Impact of a candidate policy on recent requests: its inputs from servers, the cluster or files, and the report."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from webhook.app.offline import Offline
from webhook.commands.clients.decision_client import DecisionClient
from webhook.commands.clients.record_sources import FileRecords, RecordsQuery
from webhook.commands.policy_argument import load_document, load_policy
from webhook.core.document import Purpose
from webhook.core.installation.objects import ObjectReference
from webhook.core.policy.model import LoadedPolicy
from webhook.core.reporting.decision_record import DecisionRecord
from webhook.errors import UserError
from webhook.operations.decision_port import open_decision_port
from webhook.operations.server_discovery import ServerLocation
from webhook.operations.stored_policies import read_policies
from webhook.replay.engine import Replay
from webhook.replay.events import ReplayEvent, read_events
from webhook.replay.impact import Impact, ImpactReport
from webhook.replay.recorded_requests import list_requests
from webhook.support.input_files import open_lines
from webhook.support.kubeconfig import Kubeconfig

_NAMESPACES = ObjectReference("v1", "Namespace", "")
_records = msgspec.json.Decoder(tuple[DecisionRecord, ...])


class ImpactInputs(Struct, frozen=True):
    """What is compared, and by which requests: `record`, else `decisions`, else the decisions of a server."""

    candidate: Path
    before: str
    """A file, `live`, or another policy of the cluster."""
    record: Path | None
    decisions: Path | None
    server: str | None
    since: str
    limit: int
    namespaces: Mapping[str, Mapping[str, str]] | None
    """Labels by Namespace; None: those of the cluster, if it is read."""
    kubeconfig: Kubeconfig


class Comparison(Struct, frozen=True):
    """A report, and what could not be read for it."""

    report: ImpactReport
    warnings: tuple[str, ...] = ()


class _Requests(Struct, frozen=True):
    events: tuple[ReplayEvent, ...]
    left_out: Mapping[str, int] = {}
    warnings: tuple[str, ...] = ()
    since: str = ""
    until: str = ""


async def compare_policies(inputs: ImpactInputs) -> Comparison:
    """Judge the requests by both policies. UserError: an input cannot be read, or has mistakes."""
    candidate = load_policy(inputs.candidate, Purpose.REPLAY)
    warnings: list[str] = []
    former = await _load_former_policy(inputs, warnings)
    requests = await _read_requests(inputs)
    warnings += requests.warnings
    labels = await _read_namespace_labels(inputs, warnings)
    impact = Impact(_make_replay(former, labels), _make_replay(candidate, labels))
    for event in requests.events:
        await impact.add(event)
    report = ImpactReport(
        before=f"{former.hash[:8]} ({inputs.before})",
        candidate=f"{candidate.hash[:8]} ({inputs.candidate})",
        requests=impact.requests,
        left_out={**requests.left_out, **impact.left_out},
        services=tuple(impact.list_services()),
        since=requests.since,
        until=requests.until,
    )
    return Comparison(report, tuple(warnings))


async def _load_former_policy(inputs: ImpactInputs, warnings: list[str]) -> LoadedPolicy:
    documents, found = await read_policies([inputs.before], inputs.kubeconfig)
    warnings += found
    return load_document(inputs.before, documents[inputs.before], Purpose.REPLAY)


def _make_replay(loaded: LoadedPolicy, labels: Mapping[str, Mapping[str, str]]) -> Replay:
    return Replay(Offline(loaded, labels), _refuse_change, Path())


def _refuse_change(path: Path) -> LoadedPolicy:
    raise UserError(f"{path}: a change of the policy within the requests", "leave the line out")


async def _read_requests(inputs: ImpactInputs) -> _Requests:
    if inputs.record is not None:
        with open_lines(inputs.record) as lines:
            return _Requests(tuple(event for _, event in read_events(lines, str(inputs.record))))
    if inputs.decisions is not None:
        found = await FileRecords(inputs.decisions).find_records(RecordsQuery())
        return _convert_records(tuple(found), "")
    async with open_decision_port(ServerLocation(inputs.server, inputs.kubeconfig)) as server:
        page = await DecisionClient(server.get, server.name).read_newest({"since": inputs.since}, inputs.limit)
    return _convert_records(_records.decode(msgspec.json.encode(page.decisions)), page.error or "")


def _convert_records(records: tuple[DecisionRecord, ...], error: str) -> _Requests:
    requests = list_requests(records)
    warnings = (error,) if error else ()
    if not records:
        return _Requests((), {}, warnings)
    first, last = (pick(record.at for record in records) for pick in (min, max))
    since, until = (moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in (first, last))
    return _Requests(requests.events, requests.left_out, warnings, since, until)


async def _read_namespace_labels(inputs: ImpactInputs, warnings: list[str]) -> Mapping[str, Mapping[str, str]]:
    """Return the labels of Namespaces. Without them only policies that select by name can be judged."""
    if inputs.namespaces is not None:
        return inputs.namespaces
    if inputs.record is not None or inputs.decisions is not None or not inputs.kubeconfig.exists():
        return {}
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    try:
        client = await kubernetes.connect(inputs.kubeconfig)
        try:
            found = await kubernetes.ClusterObjects(client).items(_NAMESPACES)
        finally:
            await client.close()
    except UserError as error:
        warnings.append(f"labels of Namespaces are not known: {error}")
        return {}
    return {item["metadata"]["name"]: item["metadata"].get("labels") or {} for item in found}
