"""Past requests for Pods as events of a replay: from a record, a file of decisions, or the decisions of a server."""

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from webhook.app.offline import Offline
from webhook.commands.clients.decision_client import DecisionClient, DecisionPage
from webhook.commands.clients.record_sources import FileRecords, RecordsQuery
from webhook.core.installation.objects import ObjectReference
from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.policy.model import LoadedPolicy
from webhook.core.reporting.decision_record import DecisionRecord
from webhook.errors import UserError
from webhook.operations.decision_port import open_decision_port
from webhook.operations.server_discovery import ServerLocation
from webhook.replay.engine import Replay
from webhook.replay.events import Recorded, ReplayEvent, parse, read_events
from webhook.replay.observed_requests import RecordedVerdicts
from webhook.replay.recorded_requests import list_requests
from webhook.support.input_files import open_lines, read_bounded_lines, read_content
from webhook.support.kubeconfig import Kubeconfig

_NAMESPACES = ObjectReference("v1", "Namespace", "")
_STDIN = "-"
_records = msgspec.json.Decoder(tuple[DecisionRecord, ...])


class _Kind(Struct, frozen=True, gc=False):
    """The keys of an event by which its kind is known. A Pod's labels may be called the same."""

    deleted: Raw | UnsetType = UNSET
    outcome: Raw | UnsetType = UNSET
    recorded: Raw | UnsetType = UNSET


_kinds = msgspec.json.Decoder(_Kind)


class RequestSource(Struct, frozen=True):
    """Where requests are read: `record`, else `decisions`, else the decisions of a server."""

    record: Path | None
    decisions: Path | None
    server: str | None
    since: str
    limit: int
    namespaces: Mapping[str, Mapping[str, str]] | None
    """Labels by Namespace; None: those of the cluster, if it is read."""
    kubeconfig: Kubeconfig


class RecordedEvents(Struct, frozen=True):
    """Events in order of time, which can be read several times, and what is known of them."""

    read: Callable[[], Iterator[ReplayEvent]]
    name: str
    left_out: Mapping[str, int] = {}
    warnings: tuple[str, ...] = ()
    since: datetime | None = None
    """The moment of second 0, None if it is unknown."""
    until: datetime | None = None
    """The last record; None for a record's file, which is read to its end."""
    verdicts: RecordedVerdicts = RecordedVerdicts()
    has_ends: bool = False
    """Whether events tell when Pods ended."""
    has_starts: bool = False
    """Whether events tell the outcomes of single Pods."""
    sample_every: int = 1
    is_cut: bool = False
    """Whether older requests were left out because of the limit."""


async def read_recorded(source: RequestSource) -> RecordedEvents:
    """Return past events. UserError: the source cannot be read."""
    if source.record is not None:
        return _read_record(source.record)
    if source.decisions is not None:
        found = await FileRecords(source.decisions).find_records(RecordsQuery())
        return _convert_records(tuple(found), str(source.decisions))
    async with open_decision_port(ServerLocation(source.server, source.kubeconfig)) as server:
        client = DecisionClient(server.get, server.name)
        page = await client.read_newest({"since": source.since}, source.limit)
    return convert_page(page, server.name)


def convert_page(page: DecisionPage, server: str) -> RecordedEvents:
    """Return the requests in a page of a server's decisions."""
    records = _records.decode(msgspec.json.encode(page.decisions))
    return _convert_records(records, f"decisions of {server}", page.error or "", is_cut=page.next is not None)


def _convert_records(
    records: tuple[DecisionRecord, ...], name: str, error: str = "", *, is_cut: bool = False
) -> RecordedEvents:
    requests = list_requests(records)
    warnings = (error,) if error else ()
    return RecordedEvents(
        requests.make_events,
        name,
        left_out=requests.left_out,
        warnings=warnings,
        since=requests.since,
        until=max((record.at for record in records), default=None),
        verdicts=RecordedVerdicts(are_known=True, denied=requests.denied, unfinished=requests.unfinished),
        is_cut=is_cut,
    )


def _read_record(path: Path) -> RecordedEvents:
    """Return the events of a record. It is read once to learn what it contains, then once for each replay.

    A Pod that has ended has lived, so it was admitted.
    """
    stream = BytesIO(read_content(path)) if str(path) == _STDIN else None

    @contextmanager
    def open_record() -> Iterator[BinaryIO]:
        if stream is not None:
            stream.seek(0)
            yield stream
            return
        with open_lines(path) as lines:
            yield lines

    ended: set[str] = set()
    has_starts, since, sample_every, lines_count = False, None, 1, 0
    with open_record() as lines:
        for marked in read_bounded_lines(lines, path):
            line = marked.removeprefix(BOM_UTF8)
            lines_count += 1
            kind = _decode_kind(line)
            if kind.deleted is not UNSET:
                ended.add(_decode_text(kind.deleted))
            has_starts = has_starts or kind.outcome is not UNSET
            if since is None and kind.recorded is not UNSET:
                since, sample_every = _read_head(line)

    def read() -> Iterator[ReplayEvent]:
        with open_record() as lines:
            # A server may be appending to the file: each replay judges the same lines.
            for _, event in islice(read_events(lines, str(path)), lines_count):
                yield event

    return RecordedEvents(
        read,
        str(path),
        since=since,
        verdicts=RecordedVerdicts(admitted=frozenset(ended)),
        has_ends=bool(ended),
        has_starts=has_starts,
        sample_every=sample_every,
    )


def _decode_kind(line: bytes) -> _Kind:
    """Return what kind of event a line has, of none if it is unreadable: its own error is reported with its line."""
    try:
        return _kinds.decode(line)
    except UNREADABLE_JSON:
        return _Kind()


def _decode_text(encoded: Raw) -> str:
    """Return a JSON string, "" if it is none; the event's own error is reported with its line."""
    try:
        return msgspec.json.decode(encoded, type=str)
    except UNREADABLE_JSON:
        return ""


def _read_head(line: bytes) -> tuple[datetime | None, int]:
    """Return the origin of a record and its sample."""
    try:
        event = parse(line)
    except UserError:  # reported with its line when the events are read
        return None, 1
    if not isinstance(event, Recorded) or event.recorded.since is None:
        return None, 1
    return datetime.fromisoformat(event.recorded.since), event.recorded.sample_every or 1


def make_replay(loaded: LoadedPolicy, labels: Mapping[str, Mapping[str, str]], since: datetime | None = None) -> Replay:
    """Return a replay with empty counters. `since`: the moment of second 0, for schedules."""
    origin_us = None if since is None else round(since.timestamp() * 1_000_000)
    return Replay(Offline(loaded, labels), _refuse_change, Path(), origin_us)


def _refuse_change(path: Path) -> LoadedPolicy:
    raise UserError(f"{path}: a change of the policy within the requests", "leave the line out")


async def read_namespace_labels(source: RequestSource, warnings: list[str]) -> Mapping[str, Mapping[str, str]]:
    """Return the labels of Namespaces. Without them only policies that select by name can be judged."""
    if source.namespaces is not None:
        return source.namespaces
    if source.record is not None or source.decisions is not None or not source.kubeconfig.exists():
        return {}
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    try:
        client = await kubernetes.connect(source.kubeconfig)
        try:
            found = await kubernetes.ClusterObjects(client).items(_NAMESPACES)
        finally:
            await client.close()
    except UserError as error:
        warnings.append(f"labels of Namespaces are not known: {error}")
        return {}
    return {item["metadata"]["name"]: item["metadata"].get("labels") or {} for item in found}
