"""Choice of nodes for one Pod by its service's rules: which are refused and why, and the scores of the others."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_spec import Mode
from webhook.core.policy_spec.scheduling import Numa, Scheduling
from webhook.core.scheduling.assumed.pod_load import expected_load
from webhook.core.scheduling.filters import NodeFilters, NodeRefusal, NodeVerdicts, filters_for
from webhook.core.scheduling.node_table import NodeRow
from webhook.core.scheduling.scores import NearOf, scores


class ServiceRules(Struct, frozen=True):
    """The stanza of a service, and its mode: only Enforce refuses nodes."""

    service: str
    mode: Mode
    rules: Scheduling

    @property
    def refuses(self) -> bool:
        return self.mode is Mode.ENFORCE


_NONE: Mapping[str, NodeRow] = {}


class FilteredNodes(Struct, frozen=True):
    """The nodes that pass, and those that the rules refuse; without Enforce a refused node passes all the same."""

    passed: tuple[str, ...]
    refused: Mapping[str, NodeRefusal]
    filters: NodeFilters


def filtered(
    pod: Pod,
    asked: Sequence[str],
    rows: Mapping[str, NodeRow],
    service: ServiceRules,
    verdicts: NodeVerdicts | None = None,
    candidates: Mapping[str, NodeRow] = _NONE,
) -> FilteredNodes:
    """Filter nodes for a Pod. `verdicts` are those of earlier Pods of the same `pod_kind`.

    `candidates` are rows of nodes with Pods that may be there, and count only in this call.
    """
    if verdicts is None:
        verdicts = NodeVerdicts(filters_for(pod, service.rules))
    refused = verdicts.refused(asked, rows)
    if candidates:
        for name in candidates.keys() - refused.keys() & {*asked}:
            refusal = verdicts.filters.refusal(candidates[name])
            if refusal is not None:
                refused[name] = refusal
    passed = tuple(name for name in asked if name not in refused) if service.refuses and refused else tuple(asked)
    return FilteredNodes(passed, refused, verdicts.filters)


def pod_kind(pod: Pod, service: ServiceRules) -> bytes:
    """Return what the filters of a Pod depend on: its service, and if that asks for NUMA zones its containers."""
    if service.rules.numa is not Numa.REQUIRED:
        return service.service.encode()
    spec = pod.spec
    return msgspec.json.encode((service.service, spec.init_containers, spec.containers, spec.resources, spec.overhead))


def prioritized(
    pod: Pod, asked: Iterable[str], rows: Mapping[str, NodeRow], service: ServiceRules, near: NearOf
) -> dict[str, int]:
    """Return the scores of nodes for a Pod. A node that is not known yet has none, and is left out."""
    return scores(asked, rows, expected_load(pod, service.rules.estimate), service.rules.score, near)
