"""Choice of nodes for one Pod by its service's rules: which pass, and which are refused and why."""

from collections.abc import Mapping, Sequence
from itertools import filterfalse

import msgspec
from msgspec import Struct

from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_fields import Mode
from webhook.core.policy_fields.scheduling import Numa, Scheduling
from webhook.core.scheduling.hot_node_filters import NodeFilters, NodeRefusal, NodeVerdicts, find_refused, make_filters
from webhook.core.scheduling.node_table import NodeRow


class ServiceRules(Struct, frozen=True):
    """The stanza of a service, and its mode: only Enforce refuses nodes."""

    service: str
    mode: Mode
    rules: Scheduling

    @property
    def refuses(self) -> bool:
        return self.mode is Mode.ENFORCE

    @property
    def settle_seconds(self) -> float:
        """How long a Pod's whole expected load counts."""
        return self.rules.estimate.settle.us / 1_000_000


_NONE: Mapping[str, NodeRow] = {}


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
) -> FilteredNodes:
    """Filter nodes for a Pod. `verdicts` are those of its kind, up to date: rows need not be judged again.

    `candidates` are rows of nodes with Pods that may be there, and count only in this call.
    """
    filters = make_filters(pod, service.rules) if verdicts is None else verdicts.filters
    found = find_refused(filters, asked, rows) if verdicts is None else verdicts.select_refused(asked)
    full = find_refused(filters, candidates.keys() - found.keys(), candidates)
    if full:
        found |= {name: full[name] for name in filter(full.__contains__, asked)}
    passed = tuple(filterfalse(found.__contains__, asked)) if service.refuses and found else tuple(asked)
    return FilteredNodes(passed, found, filters)


def make_pod_kind(pod: Pod, service: ServiceRules) -> bytes:
    """Return what the filters of a Pod depend on: its service, and if that asks for NUMA zones its containers."""
    if service.rules.numa is not Numa.REQUIRED:
        return service.service.encode()
    spec = pod.spec
    return msgspec.json.encode((service.service, spec.init_containers, spec.containers, spec.resources, spec.overhead))
