"""Comparison of tolerations: which taints they tolerate, and for how long."""

from collections.abc import Sequence
from math import inf

from msgspec.structs import replace

from webhook.core.kubernetes.label_constraints import parse_integer
from webhook.core.kubernetes.types import Toleration


def covers(own: Toleration, wanted: Toleration) -> bool:
    """Return whether `own` tolerates every taint that `wanted` tolerates, for at least as long."""
    key = own.key == wanted.key or (own.key == "" and own.operator == "Exists")
    value = own.operator == "Exists" or ((own.operator or "Equal") == wanted.operator and _reaches(own, wanted))
    effect = own.effect in {"", wanted.effect}
    return key and value and effect and count_seconds(own) >= count_seconds(wanted)


def _reaches(own: Toleration, wanted: Toleration) -> bool:
    """Return whether `own`, with the same operator, matches every taint value that `wanted` matches."""
    if own.value == wanted.value or own.operator not in {"Lt", "Gt"}:
        return own.value == wanted.value
    ours, theirs = parse_integer(own.value), parse_integer(wanted.value)
    if ours is None or theirs is None:
        return False
    return ours >= theirs if own.operator == "Lt" else ours <= theirs


def shortens(own: Toleration, wanted: Toleration) -> bool:
    """Return whether `own` may tolerate a taint that `wanted` tolerates for a shorter time."""
    if count_seconds(own) >= count_seconds(wanted):
        return False
    key = own.key == wanted.key or "" in {own.key, wanted.key}
    effect = own.effect == wanted.effect or "" in {own.effect, wanted.effect}
    return key and effect and _can_meet(own, wanted)


def find_overlap(own: Toleration, wanted: Toleration) -> Toleration | None:
    """Return a toleration of the taints that both tolerate, for the time of `wanted`.

    None: their values are a range, which no toleration expresses. Both must tolerate some taint.
    """
    key, effect = own.key or wanted.key, own.effect or wanted.effect
    operators = {one := own.operator or "Equal", other := wanted.operator or "Equal"}
    if "Exists" in operators:
        narrower = wanted if one == "Exists" else own
    elif "Equal" in operators:
        narrower = own if one == "Equal" else wanted
    elif one == other:
        narrower = own if _reaches(wanted, own) else wanted
    else:
        return None
    return replace(wanted, key=key, effect=effect, operator=narrower.operator or "Equal", value=narrower.value)


def _can_meet(own: Toleration, wanted: Toleration) -> bool:
    """Return whether some taint value matches both."""
    if "Exists" in {own.operator, wanted.operator}:
        return True
    if "Equal" in {one := own.operator or "Equal", other := wanted.operator or "Equal"}:
        if one == other:
            return own.value == wanted.value
        exact, ordered = (own, wanted) if one == "Equal" else (wanted, own)
        value, bound = parse_integer(exact.value), parse_integer(ordered.value)
        if value is None or bound is None:
            return False
        return value < bound if ordered.operator == "Lt" else value > bound
    below, above = (own, wanted) if one == "Lt" else (wanted, own)
    highest, lowest = parse_integer(below.value), parse_integer(above.value)
    return highest is not None and lowest is not None and (one == other or highest - lowest > 1)


def count_seconds(toleration: Toleration) -> float:
    """Return for how long a taint is tolerated; a negative time is none, as in Kubernetes."""
    return inf if toleration.toleration_seconds is None else max(0, toleration.toleration_seconds)


def reduce_tolerations(tolerations: Sequence[Toleration]) -> list[Toleration]:
    """Return the tolerations without those that another one covers, the longest last."""
    needed = [
        wanted
        for index, wanted in enumerate(tolerations)
        if not any(
            covers(other, wanted) and (place < index or not covers(wanted, other))
            for place, other in enumerate(tolerations)
            if place != index
        )
    ]
    return sorted(needed, key=count_seconds)
