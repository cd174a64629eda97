"""Filters: why a node is refused for a Pod. Each reason is a fixed text: the scheduler counts nodes by equal texts.

No reason has a percent sign: the scheduler uses it as a format.
"""

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import asdict

from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_spec.scheduling import Numa, Scheduling, WhenUnknown
from webhook.core.scheduling import numa
from webhook.core.scheduling.node_table import NodeRow

REQUESTS = "requests"
"""The source that measures nothing: it adds up what Pods ask for."""
UNKNOWN = "node(s) had no fresh load"
NO_ZONE = "node(s) had no single NUMA zone with the requested cpu and memory"


class NodeRefusal(NamedTuple):
    """`rule` is the metric label; `reason` follows a number of nodes in the Pod's Event."""

    rule: str
    reason: str


Filter = Callable[[NodeRow], NodeRefusal | None]


def filters_for(pod: Pod, rules: Scheduling) -> tuple[Filter, ...]:
    """Return the filters of a Pod by its service's rules, the cheapest first."""
    found: list[Filter] = []
    if rules.when_unknown is WhenUnknown.REFUSE:
        found.append(_unknown)
    found += [_hot(name, limit) for name, limit in asdict(rules.hot).items() if limit is not None]
    found += [_pressed(name, limit) for name, limit in asdict(rules.pressure).items() if limit is not None]
    if rules.numa is Numa.REQUIRED and numa.is_guaranteed(pod):
        found.append(lambda row: _zones(pod, row))
    return tuple(found)


def rule_names(rules: Scheduling) -> list[str]:
    """Return the names of the rules that may refuse nodes, as in a `NodeRefusal`."""
    names = [
        f"{stanza}_{name}"
        for stanza, limits in (("hot", rules.hot), ("pressure", rules.pressure))
        for name, limit in asdict(limits).items()
        if limit is not None
    ]
    numa_names = ["numa"] if rules.numa is Numa.REQUIRED else []
    return [*names, *numa_names, *(["unknown"] if rules.when_unknown is WhenUnknown.REFUSE else [])]


def limit_of(rules: Scheduling, rule: str) -> float | None:
    """Return the limit of a rule by its name; None for rules without one."""
    stanza, _, name = rule.partition("_")
    limits = {"hot": rules.hot, "pressure": rules.pressure}.get(stanza)
    return None if limits is None else float(getattr(limits, name))


def observed(row: NodeRow, rule: str) -> float | None:
    """Return what a rule compares with its limit on a node; None if that is unknown, and for rules without a limit."""
    stanza, _, name = rule.partition("_")
    if stanza == "hot":
        return _used(row, name)
    return _pressure(row, name) if stanza == "pressure" else None


def refusal(row: NodeRow, filters: tuple[Filter, ...]) -> NodeRefusal | None:
    """Return why a node is refused, by the first filter that refuses it; None if it passes."""
    for one in filters:
        found = one(row)
        if found is not None:
            return found
    return None


def _measured(row: NodeRow) -> bool:
    return row.load is not None and row.load.source != REQUESTS


def _unknown(row: NodeRow) -> NodeRefusal | None:
    return None if _measured(row) else NodeRefusal("unknown", UNKNOWN)


def _hot(resource: str, limit: float) -> Filter:
    refused = NodeRefusal(f"hot_{resource}", f"node(s) above the {resource} hot threshold {limit:g}")

    def check(row: NodeRow) -> NodeRefusal | None:
        used = _used(row, resource) if _measured(row) else None
        return refused if used is not None and used > limit else None

    return check


def _used(row: NodeRow, resource: str) -> float | None:
    if resource == "cpu":
        return row.cpu_used()
    if resource == "memory":
        return row.memory_used()
    cpu, memory = row.cpu_used(), row.memory_used()
    return None if cpu is None or memory is None else cpu + memory


def _pressed(resource: str, limit: float) -> Filter:
    refused = NodeRefusal(f"pressure_{resource}", f"node(s) above the {resource} pressure threshold {limit:g}")

    def check(row: NodeRow) -> NodeRefusal | None:
        waited = _pressure(row, resource)
        return refused if waited is not None and waited > limit else None

    return check


def _pressure(row: NodeRow, resource: str) -> float | None:
    waited: float | None = None if row.load is None else getattr(row.load, f"{resource}_pressure")
    return waited


def _zones(pod: Pod, row: NodeRow) -> NodeRefusal | None:
    return None if row.numa is None or numa.fits(pod, row.numa) else NodeRefusal("numa", NO_ZONE)
