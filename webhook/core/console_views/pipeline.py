"""Pipeline page of the console: stages with the Pods stopped at each, services to arrange, and the impact."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from webhook.core.console_views.cell import Cells, LiveCell
from webhook.core.document.editing import format_flow
from webhook.core.findings import Code
from webhook.core.plain_text import escape_line
from webhook.core.policy_fields import Mode
from webhook.core.rollout.plan import PlannedStep

MINUTES = 15
ROWS = 50
_PODS_MAX = 3
_TEXT_MAX = 120
CHECKS = ("placement", "resources", "quota", "breaker", "scheduling")
MODES = tuple(mode.value for mode in Mode)
STAGES: tuple[tuple[str, str, frozenset[str]], ...] = (
    ("own", "Find the service", frozenset({Code.UNMATCHED})),
    ("breaker", "Breaker", frozenset({Code.BREAKER_OPEN, Code.BREAKER_PROBING})),
    (
        "check",
        "Placement, resources, rules",
        frozenset(code for code in Code if code.startswith(("Placement", "Resources", "Rule", "Rewr", "Mut", "Node")))
        | {Code.IMMUTABLE, Code.GROUP_INVALID, Code.SHARES_UNSAFE},
    ),
    ("queue", "Queue", frozenset({Code.QUEUE_FULL})),
    ("charge", "Quota", frozenset({Code.QUOTA_EXCEEDED, Code.POD_TOO_LARGE, Code.STORE_UNAVAILABLE})),
)
"""The stages of a review in their order, which is fixed, and the codes of those that are stopped there."""
_LISTS = (("Windows", ("quota", "windows")), ("Topology terms", ("placement", "topology")), ("Rules", ("rules",)))
"""The lists of a service whose entries are arranged."""


class PodDenial(Struct, frozen=True, rename="camel"):
    """What is read of the record of a denial."""

    id: str
    at: datetime
    namespace: str = ""
    name: str = ""
    service: str = ""
    codes: tuple[str, ...] = ()
    dry_run: bool = False


class DenialPage(Struct, frozen=True):
    """Records, newest first."""

    decisions: tuple[PodDenial, ...]
    next: str | None = None
    error: str | None = None


class PipelineStage(Struct, frozen=True):
    """One stage, how many Pods it has stopped in the last minutes, and the newest of them."""

    name: str
    title: str
    stopped: int
    pods: tuple[PodDenial, ...]


class EntryCard(Struct, frozen=True):
    """One entry of a list of a service."""

    path: str
    text: str


class EntryList(Struct, frozen=True):
    """A list of a service."""

    title: str
    path: str
    entries: tuple[EntryCard, ...]


class ServiceCard(Struct, frozen=True):
    """One service of the document: its place from 0, what it matches, and its own and inherited modes."""

    place: int
    name: str
    matches: str
    modes: tuple[tuple[str, str], ...]
    lists: tuple[EntryList, ...]


class ImpactPod(Struct, frozen=True):
    """A Pod whose verdict changes."""

    pod: str
    before: str
    after: str
    differences: tuple[str, ...] = ()


class ImpactRow(Struct, frozen=True, rename="camel"):
    """The past requests of one service, under both policies."""

    service: str
    requests: int
    denied_before: int
    denied_after: int
    differences: Mapping[str, int]
    examples: tuple[ImpactPod, ...]


class DraftImpact(Struct, frozen=True, rename="camel"):
    """What a draft changes for the last recorded requests, as `podgate policy impact` finds it."""

    requests: int
    services: tuple[ImpactRow, ...]
    since: str = ""
    until: str = ""
    left_out: Mapping[str, int] = {}

    @property
    def changed(self) -> tuple[ImpactRow, ...]:
        return tuple(row for row in self.services if row.differences)

    @property
    def summary(self) -> str:
        """The impact in a sentence."""
        if not self.requests:
            return "No Pod is recorded yet, so the impact is not known."
        pods = f"the last {self.requests} recorded Pods"
        if not self.changed:
            return f"Nothing changes for {pods}."
        before = sum(row.denied_before for row in self.services)
        after = sum(row.denied_after for row in self.services)
        return f"Of {pods} the draft denies {after}, the policy in force {before}."


class DraftReview(Struct, frozen=True, rename="camel"):
    """What is known of a draft: mistakes, impact, and the steps of its rollout."""

    name: str
    former: str
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    impact: DraftImpact | None = None
    notes: tuple[str, ...] = ()
    """What the impact does not know, or why there is none."""
    steps: tuple[PlannedStep, ...] = ()
    plan_notes: tuple[str, ...] = ()
    is_planned: bool = False


class PipelinePage(Struct, frozen=True, rename="camel"):
    """The pipeline, as it is in force or in a draft."""

    time: str
    stages: tuple[PipelineStage, ...]
    cards: tuple[ServiceCard, ...]
    services: int
    text: str
    page: int
    pages: int
    can_edit: bool
    lines: tuple[str, ...] | None
    """The text of the document; None: some of its characters cannot be shown as they are."""
    draft: DraftReview | None = None
    changes: tuple[str, ...] = ()
    """A unified diff from the policy in force to the draft."""
    problems: tuple[str, ...] = ()

    def list_order(self) -> Sequence[str]:
        return [*(card.name for card in self.cards), *self.problems]

    def list_cells(self) -> Cells:
        """Return the cells of the page."""
        cells = {"time": LiveCell(self.time[11:19] + " UTC")}
        for stage in self.stages:
            state = {"data-state": "DENIED" if stage.stopped else "NONE"}
            cells[f"{stage.name}/stopped"] = LiveCell(str(stage.stopped), state)
        return cells


def sort_into_stages(stopped: Iterable[PodDenial]) -> tuple[PipelineStage, ...]:
    """Return the stages with the Pods that each has stopped, by the first code of their denial."""
    found: dict[str, list[PodDenial]] = {name: [] for name, _, _ in STAGES}
    for pod in stopped:
        first = pod.codes[0] if pod.codes else ""
        stage = next((name for name, _, codes in STAGES if first in codes), None)
        if stage is not None and not pod.dry_run:
            found[stage].append(pod)
    return tuple(
        PipelineStage(name, title, len(found[name]), tuple(found[name][:_PODS_MAX])) for name, title, _ in STAGES
    )


def list_cards(tree: Any) -> Iterator[ServiceCard]:
    """Yield the services of a document, valid or not."""
    plain = tree if isinstance(tree, dict) else {}
    services, defaults = plain.get("services"), _get_mapping(plain, "defaults")
    for place, service in enumerate(services if isinstance(services, list) else ()):
        if isinstance(service, dict):
            modes = {**_get_mapping(defaults, "modes"), **_get_mapping(service, "modes")}
            shown = tuple((check, str(modes.get(check) or Mode.ENFORCE.value)) for check in CHECKS if check in modes)
            matches = _format_short(service.get("match") or {})
            yield ServiceCard(place, str(service.get("name", "")), matches, shown, tuple(_list_lists(place, service)))


def _list_lists(place: int, service: Mapping[str, Any]) -> Iterator[EntryList]:
    for title, keys in _LISTS:
        found: Any = service
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        path = "/".join(("services", str(place), *keys))
        if isinstance(found, list) and found:
            entries = tuple(EntryCard(f"{path}/{number}", _format_short(entry)) for number, entry in enumerate(found))
            yield EntryList(title, path, entries)


def _format_short(value: Any) -> str:
    text = format_flow(value).removeprefix("{").removesuffix("}")
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."


def _get_mapping(fields: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = fields.get(key)
    return found if isinstance(found, dict) else {}


def list_plain_lines(document: bytes) -> tuple[str, ...] | None:
    """Return the lines of a text that a form shows and sends back as it is; None if it would come back changed."""
    text = document.decode("utf-8", "replace")
    lines = tuple(text.split("\n"))
    is_same = all(escape_line(line) == line for line in lines) and text.encode() == document
    return lines if is_same else None


def diff_documents(before: bytes, after: bytes) -> tuple[str, ...]:
    """Return the lines of a unified diff, without the names of files."""
    old, new = (raw.decode("utf-8", "replace").splitlines() for raw in (before, after))
    return tuple(difflib.unified_diff(old, new, lineterm="", n=2))[2:]
