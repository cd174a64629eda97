"""What this version acts on, by command: the one table. A stanza that nothing acts on is refused, never ignored."""

from dataclasses import dataclass
from enum import StrEnum

from webhook.core.document.parts import Part
from webhook.core.document.problems import Problem, listed


class Purpose(StrEnum):
    """Which command reads the document; of `serve`, also what it has to act with."""

    LINT = "lint"
    SERVE = "serve"
    SERVE_ALONE = "serve without a cluster"
    SERVE_IN_PROCESS = "serve --store memory"
    SERVE_ALONE_IN_PROCESS = "serve --store memory without a cluster"
    REVIEW = "review"
    REPLAY = "replay"

    @classmethod
    def serving(cls, *, alone: bool, in_process: bool) -> "Purpose":
        """Return the kind of `serve` that has no cluster to ask, that counts for itself alone, both or neither."""
        if in_process:
            return cls.SERVE_ALONE_IN_PROCESS if alone else cls.SERVE_IN_PROCESS
        return cls.SERVE_ALONE if alone else cls.SERVE


_NOBODY: frozenset[Purpose] = frozenset()
_OFFLINE = frozenset({Purpose.REVIEW, Purpose.REPLAY})
# `lint` does not know which kind of `serve` is meant, and trusts.
_WITH_A_CLUSTER = _OFFLINE | {Purpose.LINT, Purpose.SERVE, Purpose.SERVE_IN_PROCESS}
_WITH_A_SHARED_STORE = _OFFLINE | {Purpose.LINT, Purpose.SERVE, Purpose.SERVE_ALONE}


@dataclass(frozen=True, slots=True)
class Stanza:
    """A field that not every command acts on.

    `word`: only this value of it is meant. `leaves`: what else has to go with it. `lacks`: reason and remedy where
    one kind of `serve` acts on it and another cannot.
    """

    path: tuple[str, ...]
    acts: frozenset[Purpose] = _NOBODY
    word: str | None = None
    leaves: str = ""
    lacks: tuple[str, str] | None = None


def _service(*path: str, acts: frozenset[Purpose] = _NOBODY, word: str | None = None, leaves: str = "") -> Stanza:
    return Stanza(("services", "*", *path), acts, word, leaves)


def _fleet(*path: str) -> Stanza:
    reason = "`serve --store memory` counts for this server alone"
    return Stanza(path, _WITH_A_SHARED_STORE, "Fleet", lacks=(reason, "give it --store redis://..., or write Cluster"))


NOT_EVERYWHERE = (
    Stanza(("breakerGuard",)),
    Stanza(
        ("services", "*", "match", "namespaceSelector"),
        _WITH_A_CLUSTER,
        lacks=("`serve` has no cluster to ask", "give it --kubeconfig, or remove this"),
    ),
    _fleet("pools", "*", "scope"),
    _fleet("services", "*", "quota", "scope"),
    Stanza(("pools", "*", "whenExceeded"), word="Queue"),
    Stanza(
        ("services", "*", "quota", "standing"),
        _WITH_A_CLUSTER,
        lacks=("`serve` has no cluster whose Pods it could watch", "give it --kubeconfig, or remove this"),
    ),
    _service("quota", "whenExceeded", word="Queue"),
    _service("quota", "queue"),
    _service("breaker", "outcomes", acts=_OFFLINE, leaves=" (and errorRate, latency)"),
    _service("breaker", "whenOpen", word="Degrade"),
    _service("breaker", "whenOpen", word="Queue"),
)


def objections(document: Part, purpose: Purpose) -> tuple[list[Problem], list[Problem]]:
    """Return the errors, and the warnings, that a command has about stanzas it cannot act on."""
    errors: list[Problem] = []
    warnings: list[Problem] = []
    for stanza in NOT_EVERYWHERE:
        if purpose in stanza.acts:
            continue
        for part in document.select(*stanza.path):
            if part.is_empty or (stanza.word is not None and stanza.word != part.node.value):
                continue
            if purpose is Purpose.LINT and stanza.acts:
                warnings.append(_warning(part, stanza))
            else:
                errors.append(_error(part, stanza, purpose))
    return errors, warnings


def _error(part: Part, stanza: Stanza, purpose: Purpose) -> Problem:
    if stanza.lacks is not None:
        return part.wrong_field(*stanza.lacks)
    if stanza.acts:
        reason = f"not supported yet by `{purpose}`"
        return part.wrong_field(reason, f"remove it{stanza.leaves}; {_commands(stanza)} can act on it")
    if stanza.word is not None:
        return part.wrong("not supported yet", "choose another value, or remove it")
    return part.wrong_field("not supported yet", "remove it")


def _warning(part: Part, stanza: Stanza) -> Problem:
    reason = f"not supported yet by `{Purpose.SERVE}`, which will refuse it"
    remedy = f"{_commands(stanza)} can act on it; remove it{stanza.leaves} before it is served"
    return part.wrong_field(reason, remedy)


def _commands(stanza: Stanza) -> str:
    return listed([f"`podgate {command}`" for command in sorted(stanza.acts)])
