"""Feature gates: the table of stanzas that a command does not support. They are rejected, never ignored."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from webhook.core.document.yaml.parts import DocumentPart
from webhook.core.document.yaml.problems import Problem


class Purpose(StrEnum):
    """The command that reads the document; for `serve`, also its cluster and store."""

    LINT = "lint"
    SERVE = "serve"
    SERVE_ALONE = "serve without a cluster"
    SERVE_IN_PROCESS = "serve --store memory"
    SERVE_ALONE_IN_PROCESS = "serve --store memory without a cluster"
    REVIEW = "review"
    REPLAY = "replay"
    SCHEDULE = "extender"

    @classmethod
    def from_setup(cls, *, alone: bool, in_process: bool) -> "Purpose":
        """Return the purpose of `serve`: `alone` without a cluster, `in_process` with --store memory."""
        if in_process:
            return cls.SERVE_ALONE_IN_PROCESS if alone else cls.SERVE_IN_PROCESS
        return cls.SERVE_ALONE if alone else cls.SERVE


# An extender reads only its own stanzas, so limits of a server do not matter to it.
_OFFLINE = frozenset({Purpose.REVIEW, Purpose.REPLAY, Purpose.SCHEDULE})
# `lint` does not know the setup of `serve`, and assumes that it supports the stanza.
_WITH_A_CLUSTER = _OFFLINE | {Purpose.LINT, Purpose.SERVE, Purpose.SERVE_IN_PROCESS}
_WITH_A_SHARED_STORE = _OFFLINE | {Purpose.LINT, Purpose.SERVE, Purpose.SERVE_ALONE}

_NO_QUEUE = (
    "`serve` runs without a cluster, whose waiting Pods it could release",
    "give it --kubeconfig, or remove this",
)


@dataclass(frozen=True, slots=True)
class Stanza:
    """A field that some commands do not support.

    `acts`: the commands that support it; `lacks`: reason and remedy for the others. `word`: only this value is
    affected.
    """

    path: tuple[str, ...]
    acts: frozenset[Purpose]
    lacks: tuple[str, str]
    word: str | None = None


def _build_fleet_stanza(*path: str) -> Stanza:
    reason = "`serve --store memory` counts only its own Pods"
    return Stanza(path, _WITH_A_SHARED_STORE, (reason, "give it --store redis://..., or write Cluster"), "Fleet")


NOT_EVERYWHERE = (
    Stanza(
        ("services", "*", "match", "namespaceSelector"),
        _WITH_A_CLUSTER,
        ("`serve` runs without a cluster", "give it --kubeconfig, or remove this"),
    ),
    Stanza(
        ("services", "*", "quota", "per", "namespaceLabel"),
        _WITH_A_CLUSTER,
        ("`serve` runs without a cluster, whose Namespaces it could watch", "give it --kubeconfig, or write Service"),
    ),
    Stanza(
        ("pools", "*", "standing"),
        _WITH_A_CLUSTER,
        ("`serve` runs without a cluster, whose Pods it could watch", "give it --kubeconfig, or remove this"),
    ),
    _build_fleet_stanza("pools", "*", "scope"),
    _build_fleet_stanza("services", "*", "quota", "scope"),
    Stanza(("pools", "*", "whenExceeded"), _WITH_A_CLUSTER, _NO_QUEUE, "Queue"),
    Stanza(
        ("services", "*", "quota", "standing"),
        _WITH_A_CLUSTER,
        ("`serve` runs without a cluster, whose Pods it could watch", "give it --kubeconfig, or remove this"),
    ),
    Stanza(("services", "*", "quota", "whenExceeded"), _WITH_A_CLUSTER, _NO_QUEUE, "Queue"),
    Stanza(("services", "*", "quota", "queue"), _WITH_A_CLUSTER, _NO_QUEUE),
    Stanza(
        ("services", "*", "breaker", "outcomes", "source"),
        _WITH_A_CLUSTER,
        ("`serve` runs without a cluster, whose Pods it could watch", "give it --kubeconfig, or write Pushed"),
        "PodStart",
    ),
    Stanza(("services", "*", "breaker", "whenOpen"), _WITH_A_CLUSTER, _NO_QUEUE, "Queue"),
)


def check_support(document: DocumentPart, purpose: Purpose) -> Iterator[Problem]:
    """Yield the problems of stanzas that a command does not support."""
    for stanza in NOT_EVERYWHERE:
        if purpose in stanza.acts:
            continue
        for part in document.select(*stanza.path):
            if not part.is_empty and stanza.word in (None, part.node.value):
                yield _build_problem(part, stanza)


def _build_problem(part: DocumentPart, stanza: Stanza) -> Problem:
    """Return the problem, at the value if only this value is affected, otherwise at the field."""
    return part.report_field(*stanza.lacks) if stanza.word is None else part.report(*stanza.lacks)
