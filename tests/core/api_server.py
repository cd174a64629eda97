"""The API server's handling of a Pod's resources, as a model over plain JSON: defaults, rejections, QoS.

Source: k8s.io/kubernetes/pkg/apis/core (v1/defaults.go, validation/validation.go, v1/helper/qos/qos.go), 1.36.
"""

from collections.abc import Iterator
from copy import deepcopy
from fractions import Fraction

from tests.core.ranges_model import (
    Json,
    Owed,
    is_equal_only,
    list_all_boxes,
    list_boxes,
    parse_amounts,
    parse_pod_level_amounts,
    sum_containers,
)

_POD_LEVEL = ("cpu", "memory", "hugepages-")
_NONE = Fraction(0)


def apply_defaults(pod: Json) -> Json:
    """Return a Pod as it is stored: absent requests are set to the limits, and Pod-level resources are defaulted."""
    pod = deepcopy(pod)
    spec = pod["spec"]
    for container in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]:
        resources = container.get("resources") or {}
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    pod_level = spec.get("resources")
    if pod_level and (pod_level.get("limits") or pod_level.get("requests")):
        _default_pod_level(pod, pod_level)
    return pod


def _default_pod_level(pod: Json, pod_level: Json) -> None:
    names = {name for box in list_all_boxes(pod) for name in box.requests if name.startswith(_POD_LEVEL)}
    limits, requests = dict(pod_level.get("limits") or {}), dict(pod_level.get("requests") or {})
    for name in sorted(names):
        if name.startswith("hugepages-") and name not in requests:
            limits.setdefault(name, format_quantity(_sum_pod_containers(pod, "limits", name)))
    if not limits:
        return
    for name in sorted(names):
        if not is_equal_only(name):
            requests.setdefault(name, format_quantity(_sum_pod_containers(pod, "requests", name)))
    pod_level["limits"], pod_level["requests"] = limits, {**limits, **requests}


def _sum_pod_containers(pod: Json, side: str, name: str) -> Fraction:
    spec = {key: value for key, value in pod["spec"].items() if key not in {"resources", "overhead"}}
    return sum_containers({"spec": spec}, side, name)


def format_quantity(value: Fraction) -> str:
    return f"{int(value * 10**9)}n"


def list_errors(pod: Json) -> list[str]:
    """Return the errors of the API server for a Pod that it has defaulted."""
    return [*list_container_errors(pod), *list_pod_level_errors(pod)]


def list_container_errors(pod: Json) -> Iterator[str]:
    for box in list_all_boxes(pod):
        for name, request in box.requests.items():
            limit = box.limits.get(name)
            if is_equal_only(name) and request != limit:
                yield f"{box.place}: {name}: request and limit must be equal"
            elif limit is not None and request > limit:
                yield f"{box.place}: {name}: request must be at most its limit"
        for name, limit in {**box.requests, **box.limits}.items():
            if is_equal_only(name) and limit.denominator != 1:
                yield f"{box.place}: {name}: must be an integer"
            if name == "hugepages-2Mi" and (limit <= 0 or limit % 2**21):
                yield f"{box.place}: {name}: must be a positive multiple of the page size"
        has_pages = any(name.startswith("hugepages-") for name in box.requests)
        if has_pages and not {"cpu", "memory"} & {*box.requests, *box.limits}:
            yield f"{box.place}: HugePages require cpu or memory"


def list_pod_level_errors(pod: Json) -> Iterator[str]:
    requests, limits = parse_pod_level_amounts(pod, "requests"), parse_pod_level_amounts(pod, "limits")
    for name, request in requests.items():
        if _sum_pod_containers(pod, "requests", name) > request:
            yield f"spec.resources: {name}: requests must be at least what all containers request"
        if name in limits and request > limits[name]:
            yield f"spec.resources: {name}: request must be at most its limit"
    for name, limit in limits.items():
        if name.startswith("hugepages-") and _sum_pod_containers(pod, "limits", name) > limit:
            yield f"spec.resources: {name}: limits must be at least all containers' limits"
        for box in list_boxes(pod, "containers"):
            if box.limits.get(name, _NONE) > limit:
                yield f"{box.place}: {name}: must be at most the Pod's limit"


def compute_qos_class(pod: Json) -> str:
    """Return the class by ComputePodQOS, line by line, of a Pod that the API server has defaulted."""
    requests, limits, is_guaranteed = dict[str, Fraction](), dict[str, Fraction](), True
    pod_level = pod["spec"].get("resources")
    parts = [(box.requests, box.limits) for box in list_all_boxes(pod)]
    if pod_level is not None:
        parts = [(parse_amounts(pod_level.get("requests")), parse_amounts(pod_level.get("limits")))]
    for part_requests, part_limits in parts:
        for sums, part in ((requests, part_requests), (limits, part_limits)):
            for name in ("cpu", "memory"):
                if part.get(name, _NONE) > 0:
                    sums[name] = sums.get(name, _NONE) + part[name]
        has_both = all(part_limits.get(name, _NONE) > 0 for name in ("cpu", "memory"))
        if not has_both and (pod_level is None or pod_level.get("limits")):
            is_guaranteed = False
    if not requests and not limits:
        return "BestEffort"
    if is_guaranteed and requests == limits:
        return "Guaranteed"
    return "Burstable"


def find_owed_class(pod: Json, rules: Json) -> set[Owed]:
    """Return what a Pod of another QoS class than the allowed ones owes; nothing for one that would be rejected."""
    classes, stored = rules.get("pod", {}).get("qosClasses"), apply_defaults(pod)
    if classes is None or list_errors(stored) or compute_qos_class(stored) in classes:
        return set()
    return {("user", "qosClasses", "", "")}
