"""LimitRange's semantics as a slow model over plain JSON, independent of Podgate's code.

Amounts are exact fractions. A Pod is looked at as the API server keeps it: a request that is absent is its limit.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

Json = dict[str, Any]

_BOUNDLESS_AT_ZERO = {"cpu", "memory", "ephemeral-storage"}
_SUFFIXES = {
    **{letter: Fraction(1000) ** power for power, letter in enumerate(["n", "u", "m", "", "k", "M", "G", "T"], -3)},
    **{f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGT", 1)},
}


def amount(written: str | float) -> Fraction:
    """Read a quantity as Kubernetes does, which keeps nothing finer than billionths."""
    found = re.fullmatch(r"([0-9.]+)(?:[eE]([+-]?[0-9]+)|([a-zA-Z]*))", str(written))
    assert found is not None, written
    exact = Fraction(found[1]) * Fraction(10) ** int(found[2] or 0) * _SUFFIXES[found[3] or ""]
    return Fraction(ceil(exact * 10**9), 10**9)


def amounts(found: Json | None) -> dict[str, Fraction]:
    return {name: amount(written) for name, written in (found or {}).items() if written is not None}


def is_equal_only(name: str) -> bool:
    """Say whether Kubernetes takes such a request and its limit equal only."""
    return name.startswith("hugepages-") or ("/" in name and "kubernetes.io/" not in name)


class Box(NamedTuple):
    """One container, read."""

    place: str
    name: str
    stays: bool
    requests: dict[str, Fraction]
    limits: dict[str, Fraction]


def boxes(pod: Json, field: str) -> list[Box]:
    return [
        Box(
            f"spec.{field}[{index}].resources",
            one["name"],
            one.get("restartPolicy") == "Always",
            amounts((one.get("resources") or {}).get("requests")),
            amounts((one.get("resources") or {}).get("limits")),
        )
        for index, one in enumerate(pod["spec"].get(field) or [])
    ]


def all_boxes(pod: Json) -> list[Box]:
    return [*boxes(pod, "containers"), *boxes(pod, "initContainers")]


def own(pod: Json, side: str) -> dict[str, Fraction]:
    """Return what a Pod asks for all its containers together."""
    return amounts((pod["spec"].get("resources") or {}).get(side))


def is_ignored(rules: Json, name: str) -> bool:
    return any(
        name == pattern or (pattern[-1] == "*" and name[: len(pattern) - 1] == pattern[:-1])
        for pattern in rules.get("container", {}).get("ignore", [])
    )


def word(rules: Json, owner: str, key: str, name: str) -> Fraction | None:
    written = rules.get(owner, {}).get(key, {}).get(name)
    return None if written is None else amount(written)


def named(rules: Json, owner: str = "container") -> list[str]:
    keys = ("min", "defaultRequest", "default", "max")
    return list(dict.fromkeys(name for key in keys for name in rules.get(owner, {}).get(key, {})))


class Settled(NamedTuple):
    """Request and limit of one resource of one container, after all; None where there is none."""

    request: Fraction | None
    limit: Fraction | None


def settled(pod: Json, box: Box, rules: Json, name: str) -> Settled:
    """Return what one resource of one container becomes, whoever writes it: Podgate or the API server."""
    limit = box.limits.get(name)
    request = box.requests.get(name, limit)
    if is_ignored(rules, box.name):
        return Settled(request, limit)
    if rules["whenOutside"] == "Clamp":
        request, limit = (
            _clamped(pod, rules, name, request, is_limit=False),
            _clamped(pod, rules, name, limit, is_limit=True),
        )
    if name in box.limits:
        return Settled(request, limit)
    limit = _default_limit(pod, rules, name)
    if limit is not None and request is not None:
        limit = request if is_equal_only(name) else max(limit, request)
    if request is None and not _has_pod_level(pod, name):
        request = _default_request(rules, name)
    elif request is None and limit is not None:
        request = Fraction(0)
    return Settled(limit if request is None else request, limit)


def _has_pod_level(pod: Json, name: str) -> bool:
    return name in own(pod, "requests") or name in own(pod, "limits")


def _clamped(pod: Json, rules: Json, name: str, value: Fraction | None, *, is_limit: bool) -> Fraction | None:
    least, most = (word(rules, "container", key, name) for key in ("min", "max"))
    if value is None:
        return None
    if most is not None and is_limit and is_boundless(pod, name, value):
        return most
    at_most = value if most is None else min(value, most)
    return at_most if least is None or _has_pod_level(pod, name) else max(at_most, least)


def is_boundless(pod: Json, name: str, limit: Fraction) -> bool:
    """Say whether a container's limit is none: 0 is, unless the Pod itself has one."""
    return limit == 0 and name in _BOUNDLESS_AT_ZERO and name not in own(pod, "limits")


def _default_limit(pod: Json, rules: Json, name: str) -> Fraction | None:
    if name in own(pod, "limits") or (is_equal_only(name) and _has_pod_level(pod, name)):
        return None
    default = word(rules, "container", "default", name)
    if default is None and is_equal_only(name):
        return word(rules, "container", "defaultRequest", name)
    return word(rules, "container", "max", name) if default is None and name in _BOUNDLESS_AT_ZERO else default


def _default_request(rules: Json, name: str) -> Fraction | None:
    for key in ("defaultRequest", "default"):
        value = word(rules, "container", key, name)
        if value is not None:
            return value
    if name not in _BOUNDLESS_AT_ZERO:
        return None
    least, most = (word(rules, "container", key, name) for key in ("min", "max"))
    return least if most is None else most


def all_settled(pod: Json, rules: Json) -> dict[tuple[str, str], Settled]:
    """Return what each named resource of each container becomes, by place and name."""
    found = {}
    for box in all_boxes(pod):
        made = {name: settled(pod, box, rules, name) for name in {*named(rules), "cpu", "memory"}}
        nothing = Settled(None, None)
        is_lonely = made["cpu"] == made["memory"] == nothing
        for name, values in made.items():
            is_given = name not in {**box.requests, **box.limits}
            is_refused = is_lonely and is_given and name.startswith("hugepages-")
            found[box.place, name] = nothing if is_refused else values
    return found


def total(pod: Json, side: str, name: str) -> Fraction:
    """Play the Pod's life through: the most that runs at any moment, the Pod's own word before it, and overhead."""
    staying: list[Box] = []
    moments: list[list[Box]] = []
    for box in boxes(pod, "initContainers"):
        moments.append([*staying, box])
        staying += [box] if box.stays else []
    moments.append([*staying, *boxes(pod, "containers")])
    most = max(sum((_share(box, side, name) for box in moment), Fraction(0)) for moment in moments)
    if pod["spec"].get("resources") is not None:
        whole = own(pod, side).get(name)
        is_named = any(name in {**box.requests, **box.limits} for box in all_boxes(pod))
        fallback = most if most or is_named else own(pod, "limits").get(name, Fraction(0))
        most = whole if whole is not None else fallback
    overhead = amounts(pod["spec"].get("overhead")).get(name, Fraction(0))
    return most + overhead if side == "requests" or most else most


def _share(box: Box, side: str, name: str) -> Fraction:
    limit = box.limits.get(name, Fraction(0))
    return limit if side == "limits" else box.requests.get(name, limit)


Owed = tuple[str, str, str, str]
"""Whose fault, the word of the range, the resource, the place."""


def owed(pod: Json, rules: Json) -> set[Owed]:
    """Return all that is outside or missing."""
    return {*_owed_by_containers(pod, rules), *_owed_by_the_whole(pod, rules)}


def _owed_by_containers(pod: Json, rules: Json) -> Iterator[Owed]:
    wanted = all_settled(pod, rules)
    for box in all_boxes(pod):
        for name in named(rules):
            if is_ignored(rules, box.name):
                continue
            limit, request = box.limits.get(name), box.requests.get(name)
            goal = wanted[box.place, name]
            if limit is None and (goal.limit is not None or (request is None and goal.request is not None)):
                yield "rewrite", "default", name, box.place
            for value, better, is_limit in ((limit, goal.limit, True), (request, goal.request, False)):
                broken = value is not None and _broken(pod, rules, name, value, is_limit=is_limit)
                if broken:
                    yield ("user" if value == better else "rewrite"), broken, name, box.place


def _broken(pod: Json, rules: Json, name: str, value: Fraction, *, is_limit: bool) -> str:
    least, most = (word(rules, "container", key, name) for key in ("min", "max"))
    if most is not None and (value > most or (is_limit and is_boundless(pod, name, value))):
        return "max"
    if value == 0 and _has_pod_level(pod, name):
        return ""
    return "min" if least is not None and value < least else ""


def _owed_by_the_whole(pod: Json, rules: Json) -> Iterator[Owed]:
    place = "spec.containers[*].resources" if pod["spec"].get("resources") is None else "spec.resources"
    for name in {*named(rules), *named(rules, "pod")}:
        least, most = (word(rules, "pod", key, name) for key in ("min", "max"))
        requests, limits = total(pod, "requests", name), total(pod, "limits", name)
        is_boundless_whole = name in _BOUNDLESS_AT_ZERO and own(pod, "limits").get(name) == 0
        if is_boundless_whole and (most is not None or word(rules, "container", "max", name) is not None):
            yield "user", "max", name, place
        if most is not None and max(requests, limits) > most:
            yield "user", "max", name, place
        if least is not None and requests < least:
            yield "user", "min", name, place
