"""Tolerations: the policy's added to the Pod's, without those that the Pod already covers for at least as long.

The first toleration that matches a taint decides when to evict: a shorter one in front cancels a longer one behind it.
DefaultTolerationSeconds has already added 300 s for not-ready and unreachable to most Pods.
"""

from collections.abc import Iterable

from webhook.core.findings import Code, Violation
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.types import Toleration
from webhook.core.patch import PatchOperation, add
from webhook.core.placement.plan import PlacementPlan
from webhook.core.placement.toleration_match import covers, shortens


def operations(pod: Pod, plan: PlacementPlan) -> list[PatchOperation]:
    """Append missing tolerations; prepend those that a shorter one of the Pod's would cancel."""
    own = pod.spec.tolerations
    patched = list(own or ())
    found: list[PatchOperation] = []
    for wanted in plan.tolerations:  # the longest last, so that it ends up in front
        if _holds(patched, wanted.entry):
            continue
        in_front = any(shortens(have, wanted.entry) for have in patched)
        patched.insert(0 if in_front else len(patched), wanted.entry)
        found.append(add(wanted.plain, "spec", "tolerations", 0 if in_front else "-"))
    if own is None and found:
        plain = {id(wanted.entry): wanted.plain for wanted in plan.tolerations}
        return [add([plain[id(entry)] for entry in patched], "spec", "tolerations")]
    return found


def violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    own = pod.spec.tolerations or ()
    return [
        Violation(Code.PLACEMENT_UNFULFILLED, "spec.tolerations", words, f"spec.tolerations lacks {words}")
        for words in (in_words(wanted.entry) for wanted in plan.tolerations if not _holds(own, wanted.entry))
    ]


def _holds(own: Iterable[Toleration], wanted: Toleration) -> bool:
    """Return whether `own` tolerates all that `wanted` does, for as long: the first that matches decides."""
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
