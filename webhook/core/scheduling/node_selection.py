"""Choice of nodes for one Pod by its service's rules: which pass, and which are refused and why."""

from collections.abc import Mapping, Sequence
from itertools import filterfalse

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_fields import Mode
from webhook.core.policy_fields.scheduling import Hot, Numa, Pressure, Scheduling, WhenUnknown
from webhook.core.scheduling.assumed_load import PodLoad
from webhook.core.scheduling.hot_node_filters import (
    NodeFilters,
    NodeRefusal,
    find_refused,
    make_filters,
    select_counted_load,
)
from webhook.core.scheduling.node_table import NodeRow
from webhook.core.scheduling.node_verdicts import NodeVerdicts


class ServiceRules(Struct, frozen=True):
    """The stanza of a service, and its mode: only Enforce refuses nodes. `knows_zones` is as of `NodeFilters`."""

    service: str
    mode: Mode
    rules: Scheduling
    is_for_daemons: bool = False
    knows_zones: bool = True

    @classmethod
    def for_daemons(cls, service: str, mode: Mode, rules: Scheduling, *, knows_zones: bool = True) -> "ServiceRules":
        """Return the rules of a service for Pods of its DaemonSets: refused, such a Pod would be missing on its node.

        A refusal by NUMA zones stays, because the kubelet would fail the Pod for good.
        """
        rules = replace(rules, hot=Hot(), pressure=Pressure(), when_unknown=WhenUnknown.ADMIT)
        return cls(service, mode, rules, is_for_daemons=True, knows_zones=knows_zones)

    @property
    def refuses(self) -> bool:
        return self.mode is Mode.ENFORCE

    @property
    def settle_seconds(self) -> float:
        """How long a Pod's whole expected load counts."""
        return self.rules.estimate.settle.us / 1_000_000


_NONE: Mapping[str, NodeRow] = {}

PodKind = tuple[str, bytes, PodLoad]
"""Service, containers if it asks for NUMA zones, and the load that counts: what the filters of a Pod depend on."""


class FilteredNodes(Struct, frozen=True):
    """The nodes that pass, and those that the rules refuse; without Enforce a refused node passes all the same."""

    passed: tuple[str, ...]
    refused: Mapping[str, NodeRefusal]
    filters: NodeFilters


def filter_nodes(
    pod: Pod,
    asked: Sequence[str],
    rows: Mapping[str, NodeRow],
    service: ServiceRules,
    verdicts: NodeVerdicts | None = None,
    candidates: Mapping[str, NodeRow] = _NONE,
    freed: Mapping[str, NodeRow] = _NONE,
) -> FilteredNodes:
    """Filter nodes for a Pod. `verdicts` are those of its kind, up to date: rows need not be judged again.

    `candidates` are rows of nodes with Pods that may be there, `freed` those of nodes without Pods that are evicted for
    this one. Both count only in this call.
    """
    if verdicts is None:
        filters = make_filters(pod, service.rules, knows_zones=service.knows_zones)
    else:
        filters = verdicts.filters
    found = find_refused(filters, asked, rows) if verdicts is None else verdicts.select_refused(asked)
    full = find_refused(filters, filterfalse(found.__contains__, candidates), candidates)
    if full:
        found |= {name: full[name] for name in filter(full.__contains__, asked)}
    for name in found.keys() & freed.keys():
        refusal = filters.find_refusal(freed[name])
        if refusal is None:
            del found[name]
        else:
            found[name] = refusal
    passed = tuple(filterfalse(found.__contains__, asked)) if service.refuses and found else tuple(asked)
    return FilteredNodes(passed, found, filters)


def make_pod_kind(pod: Pod, service: ServiceRules, load: PodLoad) -> PodKind:
    """Return the kind of a Pod with this expected load."""
    counted = select_counted_load(service.rules, load)
    kind = f"{service.service} daemon" if service.is_for_daemons else service.service
    if service.rules.numa is not Numa.REQUIRED:
        return kind, b"", counted
    spec = pod.spec
    asked = msgspec.json.encode((spec.init_containers, spec.containers, spec.resources, spec.overhead))
    return kind, asked, counted
