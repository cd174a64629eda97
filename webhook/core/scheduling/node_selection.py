"""Choice of nodes for one Pod by its service's rules: which are refused and why, and the scores of the others."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_spec import Mode
from webhook.core.policy_spec.scheduling import Scheduling
from webhook.core.scheduling.filters import NodeFilters, NodeRefusal, filters_for
from webhook.core.scheduling.node_table import NodeRow
from webhook.core.scheduling.pod_load import expected_load
from webhook.core.scheduling.scores import NearOf, scores


class ServiceRules(Struct, frozen=True):
    """The stanza of a service, and its mode: only Enforce refuses nodes."""

    service: str
    mode: Mode
    rules: Scheduling

    @property
    def refuses(self) -> bool:
        return self.mode is Mode.ENFORCE


class FilteredNodes(Struct, frozen=True):
    """The nodes that pass, and those that the rules refuse; without Enforce a refused node passes all the same."""

    passed: tuple[str, ...]
    refused: Mapping[str, NodeRefusal]
    filters: NodeFilters


def filtered(pod: Pod, asked: Iterable[str], rows: Mapping[str, NodeRow], service: ServiceRules) -> FilteredNodes:
    """Filter nodes for a Pod. A node that is not known yet passes: the scheduler learned of it first."""
    filters = filters_for(pod, service.rules)
    refused: dict[str, NodeRefusal] = {}
    passed: list[str] = []
    for name in asked:
        row = rows.get(name)
        found = None if row is None else filters.refusal(row)
        if found is not None:
            refused[name] = found
        if found is None or not service.refuses:
            passed.append(name)
    return FilteredNodes(tuple(passed), refused, filters)


def prioritized(
    pod: Pod, asked: Iterable[str], rows: Mapping[str, NodeRow], service: ServiceRules, near: NearOf
) -> dict[str, int]:
    """Return the scores of nodes for a Pod. A node that is not known yet has none, and is left out."""
    return scores(asked, rows, expected_load(pod, service.rules.estimate), service.rules.score, near)
