"""What this version acts on, by command: the one table. A stanza that nothing acts on is refused, never ignored."""

from dataclasses import dataclass
from enum import StrEnum

from webhook.core.document.parts import Part
from webhook.core.document.problems import Problem, listed


class Purpose(StrEnum):
    """Which command reads the document."""

    LINT = "lint"
    SERVE = "serve"
    SERVE_ALONE = "serve without a cluster"
    REVIEW = "review"
    REPLAY = "replay"


_NOBODY: frozenset[Purpose] = frozenset()
_OFFLINE = frozenset({Purpose.REVIEW, Purpose.REPLAY})
# Everything that reads labels of Namespaces; `lint` does not know which kind of `serve` is meant, and trusts.
_WITH_NAMESPACES = _OFFLINE | {Purpose.LINT, Purpose.SERVE}


@dataclass(frozen=True, slots=True)
class Stanza:
    """A field that not every command acts on.

    `word`: only this value of it is meant. `leaves`: what else has to go with it.
    """

    path: tuple[str, ...]
    acts: frozenset[Purpose] = _NOBODY
    word: str | None = None
    leaves: str = ""


def _service(*path: str, acts: frozenset[Purpose] = _NOBODY, word: str | None = None, leaves: str = "") -> Stanza:
    return Stanza(("services", "*", *path), acts, word, leaves)


NOT_EVERYWHERE = (
    Stanza(("pools",)),
    Stanza(("breakerGuard",)),
    _service("pool"),
    _service("match", "namespaceSelector", acts=_WITH_NAMESPACES),
    _service("quota", "scope", word="Fleet"),
    _service("quota", "standing"),
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
    if purpose is Purpose.SERVE_ALONE and Purpose.SERVE in stanza.acts:
        return part.wrong_field("`serve` has no cluster to ask", f"give it --kubeconfig, or remove this{stanza.leaves}")
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
