"""Loading of the overrides document: bytes to entries, or all problems, and the overrides in force at a time."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from webhook.core.document.schema_problems import find_schema_problems
from webhook.core.document.yaml.document_kind import OVERRIDES, redact_unless
from webhook.core.document.yaml.nodes import Node
from webhook.core.document.yaml.parts import DocumentPart, InvalidPaths, convert, stop_at_invalid
from webhook.core.document.yaml.problems import DocumentError, Problem
from webhook.core.document.yaml.reader import read_yaml
from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.core.overrides import LiveOverrides
from webhook.core.overrides.entry import Override
from webhook.core.overrides.exception_rules import EXCEPTION_RULES, list_refused_fields
from webhook.core.quota import EXACT_AMOUNT_MAX, canonicalize, is_cpu
from webhook.core.quota.scaling import convert_to_units

OVERRIDES_BYTES_MAX = 256 << 10
"""More than the longest allowed list needs. It bounds the parsing, which runs between reviews in the same process."""

ACTIONS = ("quotaFactor", "modes", "grant", "quotaReset", "breaker", "resetAt", "queue", "releasePods")
_Entries = tuple[Override, ...]


@dataclass(frozen=True, slots=True)
class OverridesDocument:
    """Valid entries, each with its position."""

    entries: tuple[Override, ...] = ()
    _nodes: tuple[Node, ...] = ()

    def list_live(self, now_us: int) -> dict[str, tuple[Override, ...]]:
        """Return the live entries by service, in the document's order. The document must have no clashes."""
        found: dict[str, tuple[Override, ...]] = {}
        for entry in self.entries:
            if entry.is_live(now_us):
                found[entry.service] = (*found.get(entry.service, ()), entry)
        return found

    def find_clashes(self, now_us: int) -> tuple[Problem, ...]:
        """Return the problems of live entries that set the same thing. They end when one of the entries expires."""
        return tuple(self._iterate_clashes(now_us))

    def _iterate_clashes(self, now_us: int) -> Iterator[Problem]:
        first: dict[tuple[str, str, str], Node] = {}
        for entry, node in zip(self.entries, self._nodes, strict=True):
            for thing in entry.things if entry.is_live(now_us) else ():
                there = first.setdefault((entry.service, entry.target_key, thing), node)
                if there is not node:
                    whom = entry.service if entry.target is None else f"these Pods of {entry.service}"
                    whom = whom if entry.variant is None else f"variant {entry.variant} of {entry.service}"
                    reason = f"a second live entry for {whom} sets {thing}, first in line {there.line}"
                    yield node.child("service").build_problem(reason, "keep one of the two, or put both into one")

    def find_misattributed(self, former: Collection[Override], user: str) -> tuple[Problem, ...]:
        """Return the problems of entries that are not in `former` and name another author than `user`."""
        return tuple(
            node.child("by").build_problem(f"the entry is written by {user}", "write that name, or leave it out")
            for entry, node in zip(self.entries, self._nodes, strict=True)
            if entry.by not in {None, user} and entry not in former
        )

    def find_next_end_us(self, now_us: int) -> int | None:
        """Return when the next entry ends; None if none is live."""
        return min((entry.until_us for entry in self.entries if entry.is_live(now_us)), default=None)


def load(raw: bytes) -> OverridesDocument:
    """Return the entries in `raw`, none if it is empty. DocumentError: all problems."""
    if len(raw) > OVERRIDES_BYTES_MAX:
        reason = f"{len(raw)} bytes, and the overrides hold at most {OVERRIDES_BYTES_MAX} (256 KiB)"
        raise DocumentError([Problem(1, 1, "(document)", "(text)", reason, "remove what has expired")])
    with redact_unless(OVERRIDES, raw):
        return _check(raw)


def _check(raw: bytes) -> OverridesDocument:
    reading = read_yaml(raw)
    root = reading.root
    if root.value is None:
        if reading.problems:
            raise DocumentError(reading.problems)
        return OverridesDocument()
    if not isinstance(root.value, list):
        raise DocumentError(
            [root.build_problem("overrides must be a list of entries", "begin each with `- service: `")]
        )
    found = list(find_schema_problems(root, _Entries))
    problems = [*reading.problems, *(mistake.problem for mistake in found)]
    whole = DocumentPart(root, (), InvalidPaths(path for mistake in found for path in mistake.wrong))
    for entry in whole.items():
        for rule in (_does_something, _windows_differ, _amounts_are_exact, _pods_differ, *EXCEPTION_RULES):
            problems += stop_at_invalid(rule(entry))
    if problems:
        raise DocumentError(problems)
    return OverridesDocument(convert(root, _Entries), tuple(root.value))


def _does_something(entry: DocumentPart) -> Iterator[Problem]:
    parts = [part for key in ACTIONS if (part := entry.get(key)) is not None]
    if all(part.is_empty for part in parts) and isinstance(entry.node.value, dict):
        possible = [key for key in ACTIONS if key not in list_refused_fields(entry)] or ACTIONS
        yield entry.report_field("does nothing", f"add {', '.join(possible[:-1])} or {possible[-1]}")


def _windows_differ(entry: DocumentPart) -> Iterator[Problem]:
    first: dict[Duration, DocumentPart] = {}
    for window in entry.select("grant", "*", "window"):
        there = first.setdefault(window.read(Duration), window)
        if there is not window:
            reason = f"the same length as the window {there.node.shown} in line {there.node.line}"
            yield window.report(reason, "put both grants under one window")


def _pods_differ(entry: DocumentPart) -> Iterator[Problem]:
    first: dict[str, DocumentPart] = {}
    for uid in entry.select("releasePods", "*", "uid"):
        there = first.setdefault(uid.read(str), uid)
        if there is not uid:
            yield uid.report(f"the same Pod as in line {there.node.line}", "keep one of the two")


def _amounts_are_exact(entry: DocumentPart) -> Iterator[Problem]:
    for hard in entry.select("grant", "*", "hard"):
        first: dict[str, DocumentPart] = {}
        for resource, part in hard.fields().items():
            there = first.setdefault(canonicalize(resource), part)
            if there is not part:
                reason = f"counts the same as the field in line {there.node.key_line}"
                yield part.report_field(reason, "keep one of the two")
            units = convert_to_units(resource, part.read(Quantity))
            if units > EXACT_AMOUNT_MAX:
                yield part.report("above 2^53, beyond which counters are not exact", "write a smaller amount")
            elif units.denominator != 1:
                finest = "1m" if is_cpu(resource) else "1"
                yield part.report(
                    f"finer than {finest}, the smallest unit that is counted", f"write a multiple of {finest}"
                )


@dataclass(frozen=True, slots=True)
class OverridesState:
    """The overrides that are in force until the next end of an entry."""

    document: OverridesDocument = field(default_factory=OverridesDocument)
    """The document in force."""
    rejected: OverridesDocument | None = None
    """A newer document that cannot be used yet: two of its live entries set the same thing until one of them ends."""
    clashes: tuple[Problem, ...] = ()
    """The problems of `rejected`."""
    live: LiveOverrides = field(default_factory=LiveOverrides)
    ends_us: int | None = None
    """The next end of an entry, also of `rejected`; None if no entry is live."""

    def advance(self, now_us: int) -> "OverridesState":
        """Return the state at a later time."""
        return self.replace_newest(self.rejected, now_us)

    def replace_newest(self, newest: OverridesDocument | None, now_us: int) -> "OverridesState":
        """Return the state with a newer document; None: the document in force is the newest valid one."""
        clashes = () if newest is None else newest.find_clashes(now_us)
        document, rejected = (self.document, newest) if newest is None or clashes else (newest, None)
        entries = document.list_live(now_us)
        # The same object while nothing changes: policies are compiled for it.
        live = self.live if entries == self.live.entries else LiveOverrides(entries)
        ends = [known.find_next_end_us(now_us) for known in (document, rejected) if known is not None]
        ends_us = min((end for end in ends if end is not None), default=None)
        return OverridesState(document, rejected, clashes, live, ends_us)
