"""Tolerations: the policy's added to the Pod's, without those that the Pod already covers for at least as long.

The first toleration that matches a taint decides when to evict, so each taint is tolerated for the longer of the two
times: a shorter one in front would cancel a longer one behind it, of the policy as of the Pod.
DefaultTolerationSeconds has already added 300 s for not-ready and unreachable to most Pods.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from webhook.core.findings import Code, Violation
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.types import Toleration
from webhook.core.patch import PatchOperation, add
from webhook.core.placement.plan import PlacementPlan
from webhook.core.placement.toleration_match import covers, find_overlap, shortens


class _Entry(NamedTuple):
    """A toleration of the final list, as JSON if it is inserted."""

    toleration: Toleration
    plain: Any = None


def build_operations(pod: Pod, plan: PlacementPlan) -> list[PatchOperation]:
    """Return the operations that insert the tolerations that the Pod lacks."""
    own = pod.spec.tolerations
    final = [_Entry(toleration) for toleration in own or ()]
    for wanted in plan.tolerations:
        for index, part in _find_insertions([entry.toleration for entry in final], wanted.entry):
            plain = wanted.plain if part is wanted.entry else msgspec.to_builtins(part)
            final.insert(index, _Entry(part, plain))
    if own is None:
        return [add([entry.plain for entry in final], "spec", "tolerations")] if final else []
    if not all(entry.plain is None for entry in final[: len(own)]):
        final = _drop_superfluous(final, plan)
    length, found = len(own), list[PatchOperation]()
    for index, entry in enumerate(final):
        if entry.plain is not None:
            found.append(add(entry.plain, "spec", "tolerations", "-" if index == length else index))
            length += 1
    return found


def _drop_superfluous(final: list[_Entry], plan: PlacementPlan) -> list[_Entry]:
    """Return the list without insertions that later ones have made superfluous."""
    for entry in [entry for entry in final if entry.plain is not None]:
        rest = [other for other in final if other is not entry]
        left = [other.toleration for other in rest]
        if not any(any(_find_insertions(left, wanted.entry)) for wanted in plan.tolerations):
            final = rest
    return final


def find_violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    own = pod.spec.tolerations or ()
    return [
        Violation(Code.PLACEMENT_UNFULFILLED, "spec.tolerations", words, f"spec.tolerations lacks {words}")
        for words in (
            format_toleration(wanted.entry) for wanted in plan.tolerations if any(_find_insertions(own, wanted.entry))
        )
    ]


def _find_insertions(own: Sequence[Toleration], wanted: Toleration) -> Iterator[tuple[int, Toleration]]:
    """Yield the tolerations to insert, each with its index once those before it are inserted.

    Before each that shortens `wanted` goes the part for the taints of both: all of `wanted` would cancel a longer one
    behind it. A range of values has no such part, and keeps the Pod's time.
    """
    before: list[Toleration] = []
    for index, have in enumerate(own):
        if covers(have, wanted):
            return
        if shortens(have, wanted):
            part = find_overlap(have, wanted)
            if part is None or not any(covers(earlier, part) for earlier in before):
                if not any(shortens(wanted, other) for other in own[index:]):
                    yield len(before), wanted
                    return
                if part is not None:
                    yield len(before), part
                    before.append(part)
        before.append(have)
    yield len(before), wanted


def format_toleration(toleration: Toleration) -> str:
    value = f"={toleration.value}" if toleration.operator == "Equal" else f" {toleration.operator} {toleration.value}"
    limit = "" if toleration.toleration_seconds is None else f" for {toleration.toleration_seconds} s"
    return f"{toleration.key or '*'}{value.rstrip()}:{toleration.effect or '*'}{limit}"
