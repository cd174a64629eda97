"""Tolerations: the policy's added to the Pod's, without those that the Pod already covers for at least as long.

The first toleration that matches a taint decides when to evict, so each taint is tolerated for the longer of the two
times: a shorter one in front would cancel a longer one behind it, of the policy as of the Pod.
DefaultTolerationSeconds has already added 300 s for not-ready and unreachable to most Pods.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from webhook.core.findings import Code, Violation
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.types import Toleration
from webhook.core.patch import PatchOperation, add
from webhook.core.placement.plan import PlacementPlan
from webhook.core.placement.toleration_match import covers, overlap, shortens

Plain = Any
"""A toleration as JSON."""


def operations(pod: Pod, plan: PlacementPlan) -> list[PatchOperation]:
    """Return the operations that insert what the Pod's tolerations lack."""
    own = pod.spec.tolerations
    patched = list(own or ())
    plain: list[Plain] = [None] * len(patched)
    found: list[PatchOperation] = []
    for wanted in plan.tolerations:  # the longest last, so that it ends up in front
        for index, entry in _lacking(tuple(patched), wanted.entry):
            as_json = wanted.plain if entry is wanted.entry else msgspec.to_builtins(entry)
            found.append(add(as_json, "spec", "tolerations", "-" if index == len(patched) else index))
            patched.insert(index, entry)
            plain.insert(index, as_json)
    if own is None and found:
        return [add(plain, "spec", "tolerations")]
    return found


def violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    own = pod.spec.tolerations or ()
    return [
        Violation(Code.PLACEMENT_UNFULFILLED, "spec.tolerations", words, f"spec.tolerations lacks {words}")
        for words in (in_words(wanted.entry) for wanted in plan.tolerations if any(_lacking(own, wanted.entry)))
    ]


def _lacking(own: Sequence[Toleration], wanted: Toleration) -> Iterator[tuple[int, Toleration]]:
    """Yield the tolerations to insert, each with its index once those before it are inserted.

    Before each that shortens `wanted` goes the part for the taints of both: all of `wanted` would cancel a longer one
    behind it. A range of values has no such part, and keeps the Pod's time.
    """
    before: list[Toleration] = []
    for index, have in enumerate(own):
        if covers(have, wanted):
            return
        if shortens(have, wanted):
            is_longest = not any(shortens(wanted, other) for other in own[index:])
            part = wanted if is_longest else overlap(have, wanted)
            if part is not None and not any(covers(one, part) for one in before):
                yield len(before), part
                if is_longest:
                    return
                before.append(part)
        before.append(have)
    if not any(covers(one, wanted) for one in before):
        yield len(before), wanted


def in_words(toleration: Toleration) -> str:
    value = f"={toleration.value}" if toleration.operator == "Equal" else f" {toleration.operator} {toleration.value}"
    limit = "" if toleration.toleration_seconds is None else f" for {toleration.toleration_seconds} s"
    return f"{toleration.key or '*'}{value.rstrip()}:{toleration.effect or '*'}{limit}"
