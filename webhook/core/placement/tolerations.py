"""Tolerations: united by what they cover. One that the Pod bears already, for at least as long, is not added.

The first toleration that fits a taint decides when to evict, so that a shorter one in front takes the effect of a
longer one behind it. DefaultTolerationSeconds has put 300 s for not-ready and unreachable into most Pods before us.
"""

from collections.abc import Iterable

from webhook.core.findings import Code, Violation
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.types import Toleration
from webhook.core.patch import PatchOperation, add
from webhook.core.placement.plan import PlacementPlan
from webhook.core.placement.toleration_match import covers, shortens


def operations(pod: Pod, plan: PlacementPlan) -> list[PatchOperation]:
    """Append what is missing; what a shorter one would take the effect of comes first."""
    own = pod.spec.tolerations
    patched = list(own or ())
    found: list[PatchOperation] = []
    for wanted in plan.tolerations:  # the longest last: each is in front of what it prolongs
        if _holds(patched, wanted.entry):
            continue
        in_front = any(shortens(have, wanted.entry) for have in patched)
        patched.insert(0 if in_front else len(patched), wanted.entry)
        found.append(add(wanted.plain, "spec", "tolerations", 0 if in_front else "-"))
    if own is None and found:
        plain = {id(wanted.entry): wanted.plain for wanted in plan.tolerations}
        return [add([plain[id(entry)] for entry in patched], "spec", "tolerations")]
    return found


def lacks(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    own = pod.spec.tolerations or ()
    return [
        Violation(Code.PLACEMENT_UNFULFILLED, "spec.tolerations", words, f"spec.tolerations lacks {words}")
        for words in (in_words(wanted.entry) for wanted in plan.tolerations if not _holds(own, wanted.entry))
    ]


def _holds(own: Iterable[Toleration], wanted: Toleration) -> bool:
    """Say whether every taint that `wanted` tolerates is borne as long: the first that has a say decides."""
    for have in own:
        if covers(have, wanted):
            return True
        if shortens(have, wanted):
            return False
    return False


def in_words(toleration: Toleration) -> str:
    value = f"={toleration.value}" if toleration.operator == "Equal" else f" {toleration.operator} {toleration.value}"
    limit = "" if toleration.toleration_seconds is None else f" for {toleration.toleration_seconds} s"
    return f"{toleration.key or '*'}{value.rstrip()}:{toleration.effect or '*'}{limit}"
