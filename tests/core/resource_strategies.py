"""Hypothesis strategies for the resources of containers, Pods and policies, as JSON.

Each resource has a short ascending list of amounts, each in several spellings, so that equal and unequal amounts meet.
`strict`: only what a real API server accepts. Otherwise also what a file may contain.
"""

from functools import lru_cache
from itertools import product
from typing import Any

from hypothesis import strategies as st

from tests.core.generating.vocabulary import Json
from tests.core.ranges_model import RATIOS, parse_amount

LADDERS: dict[str, tuple[tuple[str | float, ...], ...]] = {
    "cpu": (("50m", "0.05"), ("100m", "0.1", 0.1), ("500m", ".5", 0.5, "5e-1"), ("1", "1e0", "1000m", 1), ("8", 8.0)),
    "memory": (("64Mi",), ("128Mi", 2**27, "0.125Gi"), ("256Mi", "268435456"), ("1Gi", "1024Mi"), ("2Gi", 2**31)),
    "ephemeral-storage": (("1Gi",), ("2Gi", "2048Mi"), ("10Gi",)),
    "hugepages-2Mi": (("2Mi",), ("4Mi", 2**22), ("8Mi",)),
    "vendor.com/gpu": (("1", 1), ("2", "2e0", "2000m"), ("4",)),
    "odd.io/a~b": (("1",), ("3", 3.0)),
    "x.kubernetes.io/batch-cpu": (("500",), ("1k", 1000), ("2k",)),
}
"""Ascending; each rung in several spellings, the policy's own first."""
ODD = "odd.io/a~b"
"""A name that Kubernetes rejects, and that a JSON pointer must escape."""
POD_LEVEL = ("cpu", "memory", "hugepages-2Mi")
IGNORED = ("istio-proxy", "vault-agent*")
_RANGE_FIELDS = ("min", "defaultRequest", "default", "max")
NAMES = ("main", "istio-proxy", "vault-agent-init", "vault", "c" * 63)


@lru_cache
def _some_names(*, strict: bool, least: int = 0) -> st.SearchStrategy[list[str]]:
    """Draw names of resources: mostly cpu and memory, which decide the QoS class."""
    names = st.sampled_from(["cpu", "memory", *(name for name in LADDERS if not strict or name != ODD)])
    return st.just(["cpu", "memory"]) | st.lists(names, min_size=least, max_size=3, unique=True)


def _is_never_overcommitted(name: str) -> bool:
    return name.startswith("hugepages-") or ("/" in name and "kubernetes.io/" not in name)


Spelling = str | float | None


@lru_cache
def _pairs(name: str, most: int, *, strict: bool) -> list[tuple[Spelling, Spelling]]:
    """Return possible requests and limits of one resource in one container; one of the two may be absent."""
    zero: list[tuple[str | float, ...]] = (
        [] if _is_never_overcommitted(name) else [("0",) if strict else ("0", 0, "0m")]
    )
    spellings = [(rung, text) for rung, texts in enumerate([*zero, *LADDERS[name][: most + 1]]) for text in texts]
    both: list[tuple[Spelling, Spelling]] = [
        (request, limit)
        for lower, request in spellings
        for upper, limit in spellings
        if lower == upper or (lower < upper and not _is_never_overcommitted(name))
    ]
    limits: list[tuple[Spelling, Spelling]] = [(None, limit) for _, limit in spellings]
    requests: list[tuple[Spelling, Spelling]] = [(request, None) for _, request in spellings]
    if strict:
        return both + limits * 3 + (requests * 3 if not _is_never_overcommitted(name) else [])
    return both + limits * 3 + requests * 3 + [(limit, request) for request, limit in both[::7]]


@lru_cache
def _draw_pair(name: str, most: int, *, strict: bool) -> st.SearchStrategy[tuple[Spelling, Spelling]]:
    return st.sampled_from(_pairs(name, most, strict=strict))


@st.composite
def container_resources(draw: st.DrawFn, *, strict: bool = False, most: int = 4) -> Json | None:
    """Draw the `resources` of one container; `most`: the highest rung."""
    sides: dict[str, Json] = {"requests": {}, "limits": {}}
    for name in draw(_some_names(strict=strict)):
        for side, written in zip(sides, draw(_draw_pair(name, most, strict=strict)), strict=True):
            if written is not None:
                sides[side][name] = written
    hugepages = any("hugepages-2Mi" in amounts for amounts in sides.values())
    if strict and hugepages and not any(name in amounts for amounts in sides.values() for name in ("cpu", "memory")):
        sides["requests"]["cpu"] = "50m"
    return draw(_trim(sides, strict=strict))


def _trim(sides: dict[str, Json], *, strict: bool) -> st.SearchStrategy[Json | None]:
    """Omit an empty map, write it as null, or keep it."""
    filled = {side: amounts for side, amounts in sides.items() if amounts}
    ways: list[Json | None] = [filled, sides]
    if not strict:
        ways.append({side: amounts or None for side, amounts in sides.items()})
        ways.append({**filled, "claims": [{"name": "device"}]})
        ways += [] if filled else [None]
    return st.sampled_from(ways)


@st.composite
def containers(
    draw: st.DrawFn, *, strict: bool = False, initial: bool = False, least: int = 1, most: int = 4, rung: int = 4
) -> list[Json]:
    """Draw a list of containers, or of init containers, among them sidecars; names differ. `rung`: the highest."""
    found: list[Json] = []
    prefix = "i" if initial else "c"
    for index in range(draw(st.integers(least, most))):
        name = draw(st.sampled_from([f"{prefix}{index}", *NAMES]))
        container: Json = {"name": name, "image": "registry.k8s.io/pause:3.10"}
        if any(other["name"] == name for other in found) or (initial and strict):
            container["name"] = f"{prefix}{index}"
        if draw(st.integers(0, 3)):
            resources = draw(container_resources(strict=strict, most=rung))
            if resources is not None or not strict:
                container["resources"] = resources
        if initial and draw(st.booleans()):
            container["restartPolicy"] = "Always"
        found.append(container)
    return found


@st.composite
def pod_resources(draw: st.DrawFn, *, strict: bool = False) -> Json:
    """Draw all fields of a Pod's spec that concern resources."""
    if draw(st.integers(0, 2)) == 0:
        return draw(_draw_pod_with_pod_level(strict=strict))
    spec: Json = {"containers": draw(containers(strict=strict))}
    if draw(st.booleans()):
        spec["initContainers"] = draw(containers(strict=strict, initial=True, least=0, most=3))
    if not strict:
        spec |= draw(st.sampled_from([{}, {}, {"resources": None}, {"overhead": None}, {"initContainers": None}]))
        spec |= draw(st.sampled_from([{}, {}, {"overhead": {"cpu": "250m", "memory": 2**20}}]))
    return spec


@st.composite
def _draw_pod_with_pod_level(draw: st.DrawFn, *, strict: bool) -> Json:
    """Draw a Pod with Pod-level resources, which are higher than those of its containers."""
    spec: Json = {"containers": draw(containers(strict=strict, most=3, rung=1))}
    if draw(st.booleans()):
        spec["initContainers"] = draw(containers(strict=strict, initial=True, least=0, most=2, rung=1))
    high: dict[str, list[Any]] = {"cpu": ["4", 8], "memory": ["1Gi", "2Gi"], "hugepages-2Mi": ["64Mi"]}
    own: dict[str, Json] = {"requests": {}, "limits": {}}
    for name in draw(st.lists(st.sampled_from(POD_LEVEL), min_size=0 if not strict else 1, max_size=2, unique=True)):
        for side in draw(st.sampled_from([["limits"], ["requests"], ["requests", "limits"]])):
            own[side][name] = draw(st.sampled_from(high[name][:1] if side == "requests" else high[name]))
        if name == "hugepages-2Mi":
            own["requests"][name] = own["limits"][name] = high[name][0]
            own["limits"].setdefault("memory", "2Gi")
    if not strict and draw(st.integers(0, 4)) == 0:
        own["limits"]["memory"] = "0"
    spec["resources"] = {side: amounts for side, amounts in own.items() if amounts}
    return spec


@lru_cache
def _range_values(name: str) -> st.SearchStrategy[tuple[Json, int]]:
    """Draw min <= defaultRequest <= default <= max, some of them absent; and the rung of the default limit."""
    rungs = range(len(LADDERS[name]))
    ascending = [four for four in product(rungs, repeat=4) if sorted(four) == list(four)]
    if _is_never_overcommitted(name):
        ascending = [four for four in ascending if four[1] == four[2]]
    found: list[tuple[Json, int]] = []
    for four, present in product(ascending, product([True, False], repeat=4)):
        values = {
            field: _write_amount(name, rung)
            for field, rung, here in zip(_RANGE_FIELDS, four, present, strict=True)
            if here
        }
        found.append((values, four[2] if "default" in values else four[3]))
    return st.sampled_from(found)


@st.composite
def resource_rules(draw: st.DrawFn, *, strict: bool = True) -> Json:
    """Draw a valid stanza `resources` of a policy.

    `strict`: without names that Kubernetes rejects.
    """
    container: Json = {field: {} for field in (*_RANGE_FIELDS, *RATIOS)}
    pod_range: Json = {"min": {}, "max": {}, RATIOS[0]: {}}
    for name in draw(_some_names(strict=strict, least=1)):
        values, default_rung = draw(_range_values(name))
        for field, written in values.items():
            container[field][name] = written
        if not _is_never_overcommitted(name) and draw(st.integers(0, 2)) == 0:
            for field, ratio in draw(_ratios(values)).items():
                container[field][name] = ratio
        bounds = draw(st.sampled_from(["", "", "", "max", "max", "min", "ratio"]))
        if bounds == "max":
            pod_range["max"][name] = _write_amount(name, draw(st.integers(default_rung, len(LADDERS[name]) - 1)))
        elif bounds == "min":
            pod_range["min"][name] = _write_amount(name, 0)
        elif bounds == "ratio" and not _is_never_overcommitted(name):
            pod_range[RATIOS[0]][name] = "1000"
    container["ignore"] = list(draw(st.sampled_from([(), IGNORED, IGNORED[1:]])))
    if draw(st.integers(0, 3)) == 0:
        pod_range["qosClasses"] = draw(_classes(container))
    own = draw(_init_amounts(container, pod_range))
    if draw(st.integers(0, 4)) == 0:
        _allow_no_limit_of_cpu(draw(st.sampled_from(["remove", "forbid"])), container, own, pod_range)
    stanza: Json = {"container": container, "initContainer": own, "pod": pod_range}
    left_out = draw(st.sampled_from([*["nothing"] * 10, *stanza]))
    when_outside = draw(st.sampled_from(["Deny", "Clamp"]))
    return {key: value for key, value in stanza.items() if key != left_out} | {"whenOutside": when_outside}


@st.composite
def _init_amounts(draw: st.DrawFn, container: Json, pod_range: Json) -> Json:
    """Draw amounts of init containers that agree with those of the containers, mostly none."""
    own: Json = {field: {} for field in _RANGE_FIELDS}
    for name in draw(_some_names(strict=True)) if draw(st.integers(0, 2)) == 0 else ():
        values, _ = draw(_range_values(name))
        merged = [values.get(field, container[field].get(name)) for field in _RANGE_FIELDS]
        amounts = [parse_amount(written) for written in merged if written is not None]
        is_equal_only = _is_never_overcommitted(name) and None not in merged[1:3]
        is_plain = name not in pod_range["max"] and name not in container[RATIOS[0]]
        if is_plain and amounts == sorted(amounts) and not (is_equal_only and merged[1] != merged[2]):
            for field, written in values.items():
                own[field][name] = written
    return own


def _allow_no_limit_of_cpu(word: str, container: Json, own: Json, pod_range: Json) -> None:
    """Remove or forbid limits of cpu, without the amounts that give or require one."""
    container[word] = ["limits.cpu"]
    for amounts in (*(container[field] for field in ("default", "max", *RATIOS)), own["default"], own["max"]):
        amounts.pop("cpu", None)
    pod_range[RATIOS[0]].pop("cpu", None)
    if pod_range.get("qosClasses") == ["Guaranteed"]:
        del pod_range["qosClasses"]


def _classes(container: Json) -> st.SearchStrategy[list[str]]:
    """Draw QoS classes that the defaults of a container leave possible."""
    burstable = [["Burstable"], ["Guaranteed", "Burstable"], ["Burstable", "BestEffort"]]
    return st.sampled_from(burstable if container[RATIOS[2]] else [*burstable, ["Guaranteed"]])


@st.composite
def _ratios(draw: st.DrawFn, values: Json) -> Json:
    """Draw ratios that the defaults among `values` satisfy."""
    most = draw(st.sampled_from([None, "1", "1.5", 2, "4", "1k"]))
    bound = parse_amount(most or "1k")
    found: Json = {} if most is None else {RATIOS[0]: most}
    request = values.get("defaultRequest")
    if "default" in values and request is not None and parse_amount(values["default"]) > bound * parse_amount(request):
        found, bound = {}, parse_amount("1k")
    times = draw(st.sampled_from([None, "1", "1500m", 3]))
    if times is not None and "default" not in values and parse_amount(times) <= bound:
        found[RATIOS[1]] = times
    share = draw(st.sampled_from([None, "0.5", "300m", "0.999"]))
    if share is not None and parse_amount(share) * bound >= 1:
        found[RATIOS[2]] = share
    return found


def _write_amount(name: str, rung: int) -> str:
    return str(LADDERS[name][rung][0])
