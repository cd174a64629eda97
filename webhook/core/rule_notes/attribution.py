"""Attribution of changes to policy entries: what each writes alone, or what is missing without it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jsonpatch
import msgspec
from msgspec.structs import replace

from webhook.core.admission import mutation
from webhook.core.kubernetes.pod import Pod
from webhook.core.policy.model import Modes, Service
from webhook.core.policy_fields import Mode, QosClass
from webhook.core.rule_notes.changes import JsonChange, Piece, find_changes
from webhook.core.rule_notes.entries import EntryKind, PolicyEntry, list_entries, reduce_to_class, strip_rules

_pod = msgspec.json.Decoder(Pod)


class Case(NamedTuple):
    """A new Pod as submitted; `after`: with all stanzas enforced that are not Disabled; `stored`: under their modes."""

    document: Any
    policy_hash: str
    acting: Service
    qos: QosClass | None
    """The class that decides its placement, None if no class does."""
    pod: Pod
    after: Pod
    stored: Pod
    found: list[JsonChange]
    """The changes from the Pod to `after`."""
    ours: frozenset[Piece]
    """Podgate's label and annotation."""

    @classmethod
    def from_document(cls, document: Any, service: Service, policy_hash: str) -> "Case":
        """Rewrite a Pod. ValueError: an unreadable quantity."""
        # A disabled concern is not read: it may hold an invalid amount.
        unseen = [concern for concern in ("placement", "resources") if getattr(service.modes, concern) is Mode.DISABLED]
        acting = replace(service, modes=Modes(), **dict.fromkeys(unseen))
        pod = _decode(document)
        qos = mutation.predict_qos_class(pod, replace(service, placement=acting.placement))
        rewritten = _rewrite(document, pod, reduce_to_class(acting, qos), policy_hash)
        is_off = service.modes.is_all_disabled()
        stored = pod if is_off else _decode(_rewrite(document, pod, service, policy_hash))
        found = find_changes(document, rewritten)
        ours = collect_pieces(find_changes(document, _rewrite(document, pod, strip_rules(service), policy_hash)))
        return cls(
            document, policy_hash, acting, qos, pod, after=_decode(rewritten), stored=stored, found=found, ours=ours
        )

    def find_pieces(self, service: Service) -> frozenset[Piece]:
        """Return what the rules of `service` would write."""
        return collect_pieces(find_changes(self.document, _rewrite(self.document, self.pod, service, self.policy_hash)))


def _decode(document: Any) -> Pod:
    return _pod.decode(msgspec.json.encode(document))


def _rewrite(document: Any, pod: Pod, service: Service, policy_hash: str) -> Any:
    copy = msgspec.json.decode(msgspec.json.encode(document))
    patch = msgspec.to_builtins(mutation.rewrite(pod, service, policy_hash))
    # Round trip through JSON, so that tuples become lists.
    return msgspec.json.decode(msgspec.json.encode(jsonpatch.apply_patch(copy, patch, in_place=True)))


def collect_pieces(found: list[JsonChange]) -> frozenset[Piece]:
    return frozenset(piece for change in found for _, piece in change.pieces)


def credit_entries(case: Case) -> list[tuple[PolicyEntry, frozenset[Piece]]]:
    """Return every active entry with the pieces that it wrote; two entries may have written the same one."""
    written = collect_pieces(case.found) - case.ours
    shares = [(entry, written & case.find_pieces(entry.alone)) for entry in list_entries(case.acting, case.qos)]
    # A change that needs several entries is credited to those that name its resource, else to those that it needs.
    for part in (_find_named_amounts, _find_needed):
        unclaimed = written.difference(*(mine for _, mine in shares))
        if unclaimed:
            shares = [(entry, mine | (unclaimed & part(entry, case))) for entry, mine in shares]
    return _decide_amounts(shares, case)


def _decide_amounts(
    shares: list[tuple[PolicyEntry, frozenset[Piece]]], case: Case
) -> list[tuple[PolicyEntry, frozenset[Piece]]]:
    """Credit each amount to the one entry that decided it, if several lead to it."""
    claims: dict[Piece, list[PolicyEntry]] = {}
    for entry, mine in shares:
        for piece in mine if entry.concern == "resources" else ():
            claims.setdefault(piece, []).append(entry)
    decided = {piece: min(of, key=_build_rank(piece, case)).rule for piece, of in claims.items() if len(of) > 1}
    return [
        (entry, frozenset(piece for piece in mine if decided.get(piece, entry.rule) == entry.rule))
        for entry, mine in shares
    ]


def _build_rank(piece: Piece, case: Case) -> Callable[[PolicyEntry], tuple[bool, bool, int]]:
    """Order entries: first a necessary one, then one with exactly this value, then by field."""
    words = _LIMITS_BY if "limits" in piece.place else _REQUESTS_BY
    value = msgspec.json.decode(piece.value) if piece.value else None

    def rank(entry: PolicyEntry) -> tuple[bool, bool, int]:
        word = entry.rule.partition("[")[0].rpartition(".")[2]
        return (
            piece in case.find_pieces(entry.rest),
            entry.amount != value,
            words.index(word),
        )

    return rank


_RATIOS = ("defaultRequestRatio", "maxLimitRequestRatio")
_LIMITS_BY = (*_RATIOS, "defaultLimitRatio", "default", "max", "min", "defaultRequest", "remove", "forbid")
_REQUESTS_BY = (*_RATIOS, "defaultRequest", "default", "min", "max", "defaultLimitRatio", "remove", "forbid")


def _find_named_amounts(entry: PolicyEntry, case: Case) -> frozenset[Piece]:
    """Return the amounts of the resource that the entry gives a default or a ratio for, or takes limits out of."""
    is_removal = entry.kind is EntryKind.REMOVAL
    amounts = collect_pieces(case.found) if is_removal or entry.kind in {EntryKind.DEFAULT, EntryKind.RATIO} else ()
    return frozenset(piece for piece in amounts if piece.place[-1] == entry.key and is_removal == (not piece.value))


def _find_needed(entry: PolicyEntry, case: Case) -> frozenset[Piece]:
    """Return the pieces that would not be written without the entry."""
    return collect_pieces(case.found) - case.find_pieces(entry.rest)
