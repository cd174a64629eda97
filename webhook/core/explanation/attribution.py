"""Which entry wrote which small thing: what each does alone, or what is missing without it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jsonpatch
import msgspec
from msgspec.structs import replace

from webhook.core.admission import mutation
from webhook.core.explanation.changes import Change, Piece, changes
from webhook.core.explanation.entries import Entry, Kind, bare, entries
from webhook.core.kubernetes.pod import Pod
from webhook.core.policy.model import Modes, Service
from webhook.core.policy_spec import Mode

_pod = msgspec.json.Decoder(Pod)


class Case(NamedTuple):
    """A new Pod as it came; `after`: were everything enforced that is not Disabled; `stored`: as its modes have it."""

    document: Any
    policy_hash: str
    acting: Service
    pod: Pod
    after: Pod
    stored: Pod
    found: list[Change]
    """What makes the Pod the one after."""
    ours: frozenset[Piece]
    """What says whose the Pod is."""

    @classmethod
    def of(cls, document: Any, service: Service, policy_hash: str) -> "Case":
        """Rewrite a Pod. ValueError: an unreadable quantity."""
        # What nobody looks at may hold an amount that cannot be read.
        unseen = [concern for concern in ("placement", "resources") if getattr(service.modes, concern) is Mode.DISABLED]
        acting = replace(service, modes=Modes(), **dict.fromkeys(unseen))
        pod = _decoded(document)
        rewritten = _rewritten(document, pod, acting, policy_hash)
        is_off = service.modes.all_disabled()
        stored = pod if is_off else _decoded(_rewritten(document, pod, service, policy_hash))
        found = changes(document, rewritten)
        ours = pieces(changes(document, _rewritten(document, pod, bare(service), policy_hash)))
        return cls(document, policy_hash, acting, pod, _decoded(rewritten), stored, found, ours)

    def by(self, service: Service) -> frozenset[Piece]:
        """Return what the Pod would get by another service's rules."""
        return pieces(changes(self.document, _rewritten(self.document, self.pod, service, self.policy_hash)))


def _decoded(document: Any) -> Pod:
    return _pod.decode(msgspec.json.encode(document))


def _rewritten(document: Any, pod: Pod, service: Service, policy_hash: str) -> Any:
    copy = msgspec.json.decode(msgspec.json.encode(document))
    patch = msgspec.to_builtins(mutation.rewrite(pod, service, policy_hash))
    # Encoded, for then all of it is JSON: a list, and no tuple.
    return msgspec.json.decode(msgspec.json.encode(jsonpatch.apply_patch(copy, patch, in_place=True)))


def pieces(found: list[Change]) -> frozenset[Piece]:
    return frozenset(piece for change in found for _, piece in change.pieces)


def credited(case: Case) -> list[tuple[Entry, frozenset[Piece]]]:
    """Return every entry that is in force with what it wrote; two may have written the same."""
    written = pieces(case.found) - case.ours
    told = [(entry, written & case.by(entry.alone)) for entry in entries(case.acting)]
    # What entries bring about only together is the work of those that speak of it, or else that cannot be spared.
    for part in (_speaks_of, _spared):
        unclaimed = written.difference(*(mine for _, mine in told))
        if unclaimed:
            told = [(entry, mine | (unclaimed & part(entry, case))) for entry, mine in told]
    return _decided(told, case)


def _decided(told: list[tuple[Entry, frozenset[Piece]]], case: Case) -> list[tuple[Entry, frozenset[Piece]]]:
    """Leave each amount to the one entry that decided it, where several come to the same."""
    claims: dict[Piece, list[Entry]] = {}
    for entry, mine in told:
        for piece in mine if entry.concern == "resources" else ():
            claims.setdefault(piece, []).append(entry)
    decided = {piece: min(of, key=_rank(piece, case)).rule for piece, of in claims.items() if len(of) > 1}
    return [
        (entry, frozenset(piece for piece in mine if decided.get(piece, entry.rule) == entry.rule))
        for entry, mine in told
    ]


def _rank(piece: Piece, case: Case) -> Callable[[Entry], tuple[bool, bool, int]]:
    """Order entries: first one that cannot be spared, then one that says this very value, then by their words."""
    words = _LIMITS_BY if "limits" in piece.place else _REQUESTS_BY

    def rank(entry: Entry) -> tuple[bool, bool, int]:
        word = entry.rule.partition("[")[0].rpartition(".")[2]
        return piece in case.by(entry.rest), entry.amount != msgspec.json.decode(piece.value), words.index(word)

    return rank


_LIMITS_BY = ("default", "max", "min", "defaultRequest")
_REQUESTS_BY = ("defaultRequest", "default", "min", "max")


def _speaks_of(entry: Entry, case: Case) -> frozenset[Piece]:
    """Return the amounts of the resource that the entry gives a default for."""
    amounts = pieces(case.found) if entry.kind is Kind.DEFAULT else ()
    return frozenset(piece for piece in amounts if piece.place[-1] == entry.key)


def _spared(entry: Entry, case: Case) -> frozenset[Piece]:
    """Return what would not be written without the entry."""
    return pieces(case.found) - case.by(entry.rest)
