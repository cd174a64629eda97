"""Kubernetes' own semantics of tolerations on raw JSON, and the faults in those of a rewritten Pod.

Source: k8s.io/api/core/v1/toleration.go, and pkg/controller/tainteviction for how long.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import product

from tests.core.oracle.nodes import Json

_DECIMAL = re.compile(r"0|-?[1-9][0-9]*")
Taint = tuple[str, str, str]
"""Key, value and effect."""
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TAINTS: list[Taint] = list(
    product(
        ["gpu", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "?"],
        ["", "a", "b", "3", "4", "5", "6", "7", "9", "07"],
        _EFFECTS,
    )
)
"""Each taint that tests distinguish."""


def taints_of(*tolerations: Json) -> list[Taint]:
    """Return a taint of each kind that these tolerations distinguish, and of kinds that none of them names."""
    named = {toleration.get("value") or "" for toleration in tolerations}
    beside = {str(int(value) + step) for value in named if _DECIMAL.fullmatch(value) for step in (-1, 1)}
    keys = {toleration["key"] for toleration in tolerations if toleration.get("key")}
    return list(product(sorted(keys | {"?"}), sorted(named | beside | {"", "?", "07"}), _EFFECTS))


def is_tolerating(toleration: Json, key: str, value: str, effect: str) -> bool:
    operator = toleration.get("operator") or "Equal"
    if toleration.get("effect") and toleration["effect"] != effect:
        return False
    if toleration.get("key") and toleration["key"] != key:
        return False
    if operator == "Exists":
        return True
    if operator == "Equal":
        return (toleration.get("value") or "") == value
    wanted = toleration.get("value") or ""
    if not _DECIMAL.fullmatch(value) or not _DECIMAL.fullmatch(wanted):
        return False
    return int(value) > int(wanted) if operator == "Gt" else int(value) < int(wanted)


def find_tolerated_seconds(tolerations: Sequence[Json], key: str, value: str, effect: str) -> float:
    """Return how long a taint is tolerated, or -1; the first toleration that matches decides, as in eviction."""
    for toleration in tolerations:
        if is_tolerating(toleration, key, value, effect):
            seconds = toleration.get("tolerationSeconds")
            return float("inf") if seconds is None else max(0, seconds)
    return -1


def is_covering(one: Json, other: Json) -> bool:
    """Return whether one toleration tolerates all taints of the other, at least as long."""
    taints = taints_of(one, other)
    return all(find_tolerated_seconds([one], *taint) >= find_tolerated_seconds([other], *taint) for taint in taints)


def is_fulfilled(tolerations: Sequence[Json], wanted: Json, *, but_for_ranges: bool = False) -> bool:
    """Return whether a toleration covers the wanted one, and none before it shortens the time for a taint.

    `but_for_ranges`: taints of a range may be tolerated for a shorter time.
    """
    is_shortened = any(
        find_tolerated_seconds(tolerations, *taint) < find_tolerated_seconds([wanted], *taint)
        for taint in taints_of(wanted, *tolerations)
        if not but_for_ranges or not is_of_a_range(taint, tolerations, wanted)
    )
    return not is_shortened and any(is_covering(toleration, wanted) for toleration in tolerations)


def is_of_a_range(taint: Taint, tolerations: Sequence[Json], wanted: Json) -> bool:
    """Return whether one of `tolerations` bounds the value of a taint from one side, and `wanted` from the other.

    No toleration is for such taints alone: the wanted time is not given to them where that shortens another's.
    """
    opposite = {"Gt": "Lt", "Lt": "Gt"}.get(wanted.get("operator") or "")
    return is_tolerating(wanted, *taint) and any(
        toleration.get("operator") == opposite and is_tolerating(toleration, *taint) for toleration in tolerations
    )


def find_toleration_faults(old: Json, new: Json, placement: Json) -> Iterator[str]:
    """Check the tolerations of a rewritten Pod: those of the user in their order, and missing ones of the policy."""
    own, final = old["spec"].get("tolerations") or [], new["spec"].get("tolerations") or []
    wanted = placement.get("tolerations") or []
    rest = iter(final)
    if not all(toleration in rest for toleration in own):
        yield f"tolerations: the user's own {own} are not there in their order: {final}"
    is_changed = old["spec"].get("tolerations") != new["spec"].get("tolerations")
    if is_changed and all(is_fulfilled(own, toleration) for toleration in wanted):
        yield f"tolerations: nothing was lacking of {own}, and they are {final}"
    added = _find_added(own, final)
    for index, one in enumerate(added):
        if not any(_is_part(one, whole) for whole in wanted):
            yield f"tolerations: {one} is not the policy's"
        if any(_is_equivalent(one, other) for other in added[:index]):
            yield f"tolerations: {one} is added twice"
    for taint in taints_of(*own, *wanted):
        by_user, by_final = (find_tolerated_seconds(some, *taint) for some in (own, final))
        longest = max([by_user, *(find_tolerated_seconds([toleration], *taint) for toleration in wanted)])
        if by_user <= by_final <= longest and any(is_of_a_range(taint, own, toleration) for toleration in wanted):
            continue
        if by_final != longest:
            yield f"tolerations: taint {taint} is tolerated for {by_final} s by {final}, not for {longest} s"


def _is_part(toleration: Json, whole: Json) -> bool:
    """Return whether a toleration is for as long as another, and for no other taints."""
    return toleration.get("tolerationSeconds") == whole.get("tolerationSeconds") and is_covering(whole, toleration)


def _is_equivalent(one: Json, other: Json) -> bool:
    return is_covering(one, other) and is_covering(other, one)


def _find_added(own: Sequence[Json], final: Sequence[Json]) -> list[Json]:
    added = list(final)
    for toleration in own:
        if toleration in added:
            added.remove(toleration)
    return added
