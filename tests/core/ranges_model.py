"""LimitRange's semantics as a slow model over plain JSON, independent of Podgate's code.

Amounts are exact fractions. Pods are read as the API server stores them: an absent request equals the limit.
"""

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import ceil, floor
from typing import Any, NamedTuple

Json = dict[str, Any]

RATIOS = ("maxLimitRequestRatio", "defaultLimitRatio", "defaultRequestRatio")
_BOUNDLESS_AT_ZERO = {"cpu", "memory", "ephemeral-storage"}
_SUFFIXES = {
    **{letter: Fraction(1000) ** power for power, letter in enumerate(["n", "u", "m", "", "k", "M", "G", "T"], -3)},
    **{f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGT", 1)},
}


def parse_amount(written: str | float) -> Fraction:
    """Parse a quantity as Kubernetes does, rounded up to billionths."""
    found = re.fullmatch(r"([0-9.]+)(?:[eE]([+-]?[0-9]+)|([a-zA-Z]*))", str(written))
    assert found is not None, written
    exact = Fraction(found[1]) * Fraction(10) ** int(found[2] or 0) * _SUFFIXES[found[3] or ""]
    return Fraction(ceil(exact * 10**9), 10**9)


def parse_amounts(found: Json | None) -> dict[str, Fraction]:
    return {name: parse_amount(written) for name, written in (found or {}).items() if written is not None}


def is_equal_only(name: str) -> bool:
    """Return whether Kubernetes requires request and limit of a resource to be equal."""
    return name.startswith("hugepages-") or ("/" in name and "kubernetes.io/" not in name)


class Box(NamedTuple):
    """The resources of one container."""

    place: str
    name: str
    is_sidecar: bool
    requests: dict[str, Fraction]
    limits: dict[str, Fraction]


def list_boxes(pod: Json, field: str) -> list[Box]:
    return [
        Box(
            f"spec.{field}[{index}].resources",
            container["name"],
            container.get("restartPolicy") == "Always",
            parse_amounts((container.get("resources") or {}).get("requests")),
            parse_amounts((container.get("resources") or {}).get("limits")),
        )
        for index, container in enumerate(pod["spec"].get(field) or [])
    ]


def list_all_boxes(pod: Json) -> list[Box]:
    return [*list_boxes(pod, "containers"), *list_boxes(pod, "initContainers")]


def parse_pod_level_amounts(pod: Json, side: str) -> dict[str, Fraction]:
    """Return the Pod-level requests or limits."""
    return parse_amounts((pod["spec"].get("resources") or {}).get(side))


def is_ignored(rules: Json, name: str) -> bool:
    return any(
        name == pattern or (pattern[-1] == "*" and name[: len(pattern) - 1] == pattern[:-1])
        for pattern in rules.get("container", {}).get("ignore", [])
    )


def parse_rule_amount(rules: Json, owner: str, key: str, name: str) -> Fraction | None:
    written = rules.get(owner, {}).get(key, {}).get(name)
    return None if written is None else parse_amount(written)


_AMOUNTS = ("min", "defaultRequest", "default", "max")


def list_named_resources(rules: Json, owner: str = "container") -> list[str]:
    found = [name for key in (*_AMOUNTS, *RATIOS) for name in rules.get(owner, {}).get(key, {})]
    if owner == "container":
        found += list_named_resources(rules, "initContainer")
        found += [name for key in ("remove", "forbid") for name in _list_limits(rules, key)]
    return list(dict.fromkeys(found))


def _list_limits(rules: Json, key: str) -> list[str]:
    """Return the resources whose limits are removed or forbidden."""
    return [name.partition(".")[2] for name in rules.get("container", {}).get(key, [])]


def is_removed(rules: Json, name: str) -> bool:
    return name in _list_limits(rules, "remove")


def select_rules(rules: Json, box: Box) -> Json:
    """Return the rules of one container: an init container has amounts of its own, unless it is a sidecar."""
    if box.is_sidecar or not box.place.startswith("spec.initContainers"):
        return rules
    container, own = dict(rules.get("container", {})), rules.get("initContainer", {})
    for key in _AMOUNTS:
        container[key] = container.get(key, {}) | own.get(key, {})
    times = container.get(RATIOS[1], {})
    container[RATIOS[1]] = {name: times[name] for name in times if name not in own.get("default", {})}
    return {**rules, "container": container}


def list_written_resources(rules: Json, box: Box) -> list[str]:
    """Return the resources that a rule of this container writes."""
    container = select_rules(rules, box).get("container", {})
    return [
        *list_named_resources({"container": {**container, "remove": [], "forbid": []}}),
        *_list_limits(rules, "remove"),
    ]


class Settled(NamedTuple):
    """Final request and limit of one resource of one container; None if absent."""

    request: Fraction | None
    limit: Fraction | None


def settle(pod: Json, box: Box, rules: Json, name: str, *, again: bool = False) -> Settled:
    """Return the final request and limit of one resource of one container, by Podgate and the API server.

    `again`: Podgate has rewritten the Pod before, so that a request equal to its limit is a written one.
    """
    rules = select_rules(rules, box)
    limit = box.limits.get(name)
    request = box.requests.get(name, limit)
    if is_ignored(rules, box.name):
        return Settled(request, limit)
    is_limit_alone = bool(limit) and request == limit and not again and not _has_pod_level(pod, name)
    if rules["whenOutside"] == "Clamp":
        request, limit = (
            _clamp(pod, rules, name, request, is_limit=False),
            _clamp(pod, rules, name, limit, is_limit=True),
        )
    if name not in box.limits:
        limit = _find_default_limit(pod, rules, name, request)
        if request is None and not _has_pod_level(pod, name):
            request = _default_request(rules, name)
            is_of_limit = parse_rule_amount(rules, "container", "defaultRequest", name) is None
            if is_of_limit and request is not None and request == limit:
                request = _compute_share(rules, name, limit)
        elif request is None and limit is not None:
            request = Fraction(0)
        request = limit if request is None else request
    elif is_limit_alone and limit is not None:
        request = _compute_share(rules, name, limit)
    final = _raise_to_ratio(pod, rules, name, request, limit)
    return Settled(final, None if is_removed(rules, name) else limit)


def _find_default_limit(pod: Json, rules: Json, name: str, request: Fraction | None) -> Fraction | None:
    """Return the default limit of a container with this request or without one."""
    limit = _default_limit(pod, rules, name)
    base = request
    if base is None and not _has_pod_level(pod, name):
        base = parse_rule_amount(rules, "container", "defaultRequest", name)
        if base is None and limit is None and name in _BOUNDLESS_AT_ZERO:
            base = parse_rule_amount(rules, "container", "min", name)
    most, times = (parse_rule_amount(rules, "container", key, name) for key in RATIOS[:2])
    top = parse_rule_amount(rules, "container", "max", name)
    if not base and name in _BOUNDLESS_AT_ZERO:
        base = None  # a multiple of 0 would be no limit
    if times is not None and base is not None and name not in parse_pod_level_amounts(pod, "limits"):
        limit = _round(name, base * times, floor)
        limit = limit if top is None else min(limit, top)
    elif most is not None and base is not None and limit is not None:
        limit = min(limit, _round(name, base * most, floor))
    if limit is None or request is None:
        return limit
    return request if is_equal_only(name) else max(limit, request)


def _raise_to_ratio(
    pod: Json, rules: Json, name: str, request: Fraction | None, limit: Fraction | None
) -> Fraction | None:
    """Return the request, under Clamp not too far below its limit."""
    if request is None or limit is None or _has_pod_level(pod, name):
        return request
    most = parse_rule_amount(rules, "container", RATIOS[0], name)
    if rules["whenOutside"] == "Clamp" and most is not None and limit > most * request:
        return min(limit, _round(name, limit / most, ceil))
    return request


def _compute_share(rules: Json, name: str, limit: Fraction) -> Fraction:
    """Return the request of a container that wrote none: all of its limit without a ratio."""
    share = parse_rule_amount(rules, "container", RATIOS[2], name)
    least = parse_rule_amount(rules, "container", "min", name)
    return limit if share is None else min(limit, max(_round(name, limit * share, ceil), least or Fraction(0)))


def _round(name: str, value: Fraction, by: Callable[[Fraction], int]) -> Fraction:
    """Round to the unit in which a resource is written: thousandths of a core, else whole numbers."""
    parts = 1000 if name == "cpu" else 1
    return Fraction(by(value * parts), parts)


def _is_in_ratio(pod: Json, most: Fraction, name: str, request: Fraction | None, limit: Fraction | None) -> bool:
    """Return whether LimitRanger would accept a ratio; with Pod-level amounts, containers need none of their own."""
    if not request or not limit:
        return _has_pod_level(pod, name)
    return limit / request <= most


def _has_pod_level(pod: Json, name: str) -> bool:
    return name in parse_pod_level_amounts(pod, "requests") or name in parse_pod_level_amounts(pod, "limits")


def _clamp(pod: Json, rules: Json, name: str, value: Fraction | None, *, is_limit: bool) -> Fraction | None:
    least, most = (parse_rule_amount(rules, "container", key, name) for key in ("min", "max"))
    if value is None:
        return None
    if most is not None and is_limit and is_boundless(pod, name, value):
        return most
    at_most = value if most is None else min(value, most)
    return at_most if least is None or _has_pod_level(pod, name) else max(at_most, least)


def is_boundless(pod: Json, name: str, limit: Fraction) -> bool:
    """Return whether a container's limit is no limit: 0, unless there is a Pod-level limit."""
    return limit == 0 and name in _BOUNDLESS_AT_ZERO and name not in parse_pod_level_amounts(pod, "limits")


def _default_limit(pod: Json, rules: Json, name: str) -> Fraction | None:
    if name in parse_pod_level_amounts(pod, "limits") or (is_equal_only(name) and _has_pod_level(pod, name)):
        return None
    default = parse_rule_amount(rules, "container", "default", name)
    if default is None and is_equal_only(name):
        return parse_rule_amount(rules, "container", "defaultRequest", name)
    return (
        parse_rule_amount(rules, "container", "max", name)
        if default is None and name in _BOUNDLESS_AT_ZERO
        else default
    )


def _default_request(rules: Json, name: str) -> Fraction | None:
    for key in ("defaultRequest", "default"):
        value = parse_rule_amount(rules, "container", key, name)
        if value is not None:
            return value
    if name not in _BOUNDLESS_AT_ZERO:
        return None
    least, most = (parse_rule_amount(rules, "container", key, name) for key in ("min", "max"))
    return least if most is None else most


def settle_all(pod: Json, rules: Json, *, again: bool = False) -> dict[tuple[str, str], Settled]:
    """Return the final request and limit of each resource of each container, by place and name."""
    found = {}
    for box in list_all_boxes(pod):
        values_by_name = {
            name: settle(pod, box, rules, name, again=again) for name in {*list_named_resources(rules), "cpu", "memory"}
        }
        nothing = Settled(None, None)
        is_empty = values_by_name["cpu"] == values_by_name["memory"] == nothing
        for name, values in values_by_name.items():
            is_given = name not in {**box.requests, **box.limits}
            is_refused = is_empty and is_given and name.startswith("hugepages-")
            found[box.place, name] = nothing if is_refused else values
    return found


def sum_containers(pod: Json, side: str, name: str) -> Fraction:
    """Return the peak of the containers that run together, or the Pod-level value instead, with overhead."""
    sidecars: list[Box] = []
    moments: list[list[Box]] = []
    for box in list_boxes(pod, "initContainers"):
        moments.append([*sidecars, box])
        sidecars += [box] if box.is_sidecar else []
    moments.append([*sidecars, *list_boxes(pod, "containers")])
    most = max(sum((_find_taken(box, side, name) for box in moment), Fraction(0)) for moment in moments)
    if pod["spec"].get("resources") is not None:
        pod_level = parse_pod_level_amounts(pod, side).get(name)
        is_named = any(name in {**box.requests, **box.limits} for box in list_all_boxes(pod))
        fallback = most if most or is_named else parse_pod_level_amounts(pod, "limits").get(name, Fraction(0))
        most = pod_level if pod_level is not None else fallback
    overhead = parse_amounts(pod["spec"].get("overhead")).get(name, Fraction(0))
    return most + overhead if side == "requests" or most else most


def _find_taken(box: Box, side: str, name: str) -> Fraction:
    limit = box.limits.get(name, Fraction(0))
    return limit if side == "limits" else box.requests.get(name, limit)


Owed = tuple[str, str, str, str]
"""Who must fix it, the field of the range, the resource, the place."""


def find_owed(pod: Json, rules: Json) -> set[Owed]:
    """Return all values that are outside the range or missing, of a Pod that has been rewritten."""
    return {*_find_owed_by_containers(pod, rules), *_find_owed_by_pod(pod, rules)}


def _find_owed_by_containers(pod: Json, policy: Json) -> Iterator[Owed]:
    wanted = settle_all(pod, policy, again=True)
    for box in list_all_boxes(pod):
        rules = select_rules(policy, box)
        for name in list_named_resources(rules):
            if is_ignored(rules, box.name):
                continue
            limit, request = box.limits.get(name), box.requests.get(name)
            goal = wanted[box.place, name]
            if limit is None and (goal.limit is not None or (request is None and goal.request is not None)):
                yield "rewrite", "default", name, box.place
            for word in ("max", "min"):
                sides = ((limit, goal.limit, True), (request, goal.request, False))
                broken = [
                    (None if wanted is None else _find_broken_bound(pod, rules, name, wanted, is_limit=is_limit))
                    == word
                    for value, wanted, is_limit in sides
                    if value is not None and _find_broken_bound(pod, rules, name, value, is_limit=is_limit) == word
                ]
                if broken:
                    yield ("user" if any(broken) else "rewrite"), word, name, box.place
            yield from _find_owed_by_ratios(pod, rules, box, name, goal)
            for key, party in (("remove", "rewrite"), ("forbid", "user")):
                if limit is not None and name in _list_limits(rules, key):
                    yield party, key, name, box.place


def _find_owed_by_ratios(pod: Json, rules: Json, box: Box, name: str, goal: Settled) -> Iterator[Owed]:
    limit = box.limits.get(name)
    request = box.requests.get(name, limit)
    most = parse_rule_amount(rules, "container", RATIOS[0], name)
    if most is None or _is_in_ratio(pod, most, name, request, limit):
        return
    if not _is_in_ratio(pod, most, name, *goal):
        yield "user", RATIOS[0], name, box.place
    elif limit is not None:
        yield "rewrite", RATIOS[0], name, box.place


def _find_broken_bound(pod: Json, rules: Json, name: str, value: Fraction, *, is_limit: bool) -> str:
    least, most = (parse_rule_amount(rules, "container", key, name) for key in ("min", "max"))
    if most is not None and (value > most or (is_limit and is_boundless(pod, name, value))):
        return "max"
    if value == 0 and _has_pod_level(pod, name):
        return ""
    return "min" if least is not None and value < least else ""


def _find_owed_by_pod(pod: Json, rules: Json) -> Iterator[Owed]:
    place = "spec.containers[*].resources" if pod["spec"].get("resources") is None else "spec.resources"
    for name in _list_limits(rules, "forbid"):
        if name in parse_pod_level_amounts(pod, "limits"):
            yield "user", "forbid", name, "spec.resources"
    for name in {*list_named_resources(rules), *list_named_resources(rules, "pod")}:
        least, most = (parse_rule_amount(rules, "pod", key, name) for key in ("min", "max"))
        requests, limits = sum_containers(pod, "requests", name), sum_containers(pod, "limits", name)
        is_pod_boundless = name in _BOUNDLESS_AT_ZERO and parse_pod_level_amounts(pod, "limits").get(name) == 0
        if is_pod_boundless and (most is not None or parse_rule_amount(rules, "container", "max", name) is not None):
            yield "user", "max", name, place
        if most is not None and max(requests, limits) > most:
            yield "user", "max", name, place
        if least is not None and requests < least:
            yield "user", "min", name, place
        ratio = parse_rule_amount(rules, "pod", RATIOS[0], name)
        if ratio is not None and (is_pod_boundless or not requests or not limits or limits / requests > ratio):
            yield "user", RATIOS[0], name, place
