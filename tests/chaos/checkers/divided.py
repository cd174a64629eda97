"""Shares: at rest each workload is divided exactly, and each slot has its variant."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from tests.chaos.checkers.facts import HASH_ANNOTATION, Facts
from tests.chaos.checkers.judging import Judge
from webhook.core.placement import SERVICE_LABEL
from webhook.core.policy_fields import Shares

VARIANT_LABEL, SLOT_ANNOTATION = "podgate.io/variant", "podgate.io/slot"
LOWEST_FIRST = frozenset({"ReplicaSet"})
"""Kinds whose Pods take the lowest free slot; those of others have their index."""


def check_shares(facts: Facts, judge: Judge) -> None:
    """Judge the Pods that exist in the end."""
    end = facts.history.end
    if end is None or not end.rested:
        return
    by_owner: dict[tuple[str, str, str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for document in end.pods:
        metadata = document["metadata"]
        owners = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
        is_over = document.get("status", {}).get("phase") in {"Succeeded", "Failed"} or metadata.get(
            "deletionTimestamp"
        )
        if owners and VARIANT_LABEL in (metadata.get("labels") or {}) and not is_over:
            by_owner[metadata["namespace"], owners[0]["kind"], owners[0]["name"], owners[0]["uid"]].append(document)
    for (namespace, kind, name, _), pods in by_owner.items():
        shares = _find_shares(facts, pods[0])
        created = [facts.created[uid].asked_at for pod in pods if (uid := pod["metadata"]["uid"]) in facts.created]
        # Under a fault slots may be guesses, and a scale-down deletes first what is not ready.
        if shares is not None and created and not facts.faults.list_active(min(created) - 60, end.at):
            _check_owner(judge, f"{kind} {namespace}/{name}", kind, pods, shares, end.at)


def _find_shares(facts: Facts, document: Mapping[str, Any]) -> Shares | None:
    metadata = document["metadata"]
    policy = facts.policies.get((metadata.get("annotations") or {}).get(HASH_ANNOTATION, ""))
    service = policy.services.get((metadata.get("labels") or {}).get(SERVICE_LABEL, "")) if policy else None
    return service.placement.shares if service is not None and service.placement is not None else None


def _check_owner(
    judge: Judge, of: str, kind: str, pods: Sequence[Mapping[str, Any]], shares: Shares, at: float
) -> None:
    slots = sorted(int((pod["metadata"].get("annotations") or {}).get(SLOT_ANNOTATION, 0)) for pod in pods)
    judge.expect(
        holds=len(set(slots)) == len(slots) and slots[0] >= 1,
        of=of,
        field="slots",
        value=slots,
        expected="each once",
        at=at,
    )
    if kind in LOWEST_FIRST:
        judge.expect(
            holds=slots == list(range(1, len(slots) + 1)),
            of=of,
            field="slots",
            value=slots,
            expected=f"1 to {len(slots)}, without holes",
            at=at,
        )
    found = Counter(pod["metadata"]["labels"][VARIANT_LABEL] for pod in pods)
    wanted = Counter(choose_variant(shares, slot) for slot in slots)
    judge.expect(
        holds=found == wanted,
        of=of,
        field="variants",
        value=dict(sorted(found.items())),
        expected=f"{dict(sorted(wanted.items()))} by slots",
        at=at,
    )


def choose_variant(shares: Shares, slot: int) -> str:
    """Return the variant of a slot as docs/shares.md words it: the base, then the one that lacks most of its weight."""
    base = shares.base.pods if shares.base is not None else 0
    if shares.base is not None and slot <= base:
        return shares.base.variant
    weights = {variant.name: variant.weight or 0 for variant in shares.variants}
    total, given = sum(weights.values()), dict.fromkeys(weights, 0)
    chosen = ""
    for number in range(1, slot - base + 1):
        chosen = max(weights, key=lambda name: weights[name] * number - total * given[name])
        given[chosen] += 1
    return chosen
