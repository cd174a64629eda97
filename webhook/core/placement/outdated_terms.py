"""Outdated terms: affinity and spread constraints that an earlier call wrote for the service that a new Pod has left.

managedFields show each spread constraint, but a list of affinity only as a whole. A list that the Pod's creator sent
stays as it is, unless the policy of the new service would leave no node to it.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import TypeVar

import msgspec

from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.sent_fields import SentFields
from webhook.core.kubernetes.types import NodeSelectorTerm, PodAffinityTerm, WeightedPodAffinityTerm
from webhook.core.patch import PatchOperation, remove
from webhook.core.placement import affinity, canonical_form, required, spread
from webhook.core.placement.node_match import find_required_terms
from webhook.core.placement.node_terms import NodeCondition, add_conditions, term_constraints
from webhook.core.placement.plan import PlacementPlan, PlannedEntry

_T = TypeVar("_T")
_AFFINITY = ("spec", "affinity")
_NODES = (*_AFFINITY, "nodeAffinity")
_SPREADS = ("spec", "topologySpreadConstraints")


def remove_terms(pod: Pod, plan: PlacementPlan, former: PlacementPlan, sent: SentFields) -> Iterator[PatchOperation]:
    """Yield the operations that remove the terms of the plan `former` that `plan` does not have."""
    yield from _remove_spreads(pod, plan, former, sent)
    yield from _remove_conditions(pod, plan, former, sent)
    own = pod.spec.affinity
    nodes = None if own is None else own.node_affinity
    preferred = None if nodes is None else nodes.preferred
    mean = canonical_form.canonicalize_preferred
    yield from _remove_entries(preferred, plan.preferred, former.preferred, mean, sent, "nodeAffinity")
    yield from _remove_pod_terms(pod, plan, former, sent, "podAffinity")
    yield from _remove_pod_terms(pod, plan, former, sent, "podAntiAffinity")


def _remove_spreads(pod: Pod, plan: PlacementPlan, former: PlacementPlan, sent: SentFields) -> Iterator[PatchOperation]:
    for index, own in reversed([*enumerate(pod.spec.topology_spread_constraints or ())]):
        is_wanted, was_wanted = (
            any(spread.is_equal(own, wanted, pod.labels) for wanted in of.spreads) for of in (plan, former)
        )
        key = {"topologyKey": own.topology_key, "whenUnsatisfiable": own.when_unsatisfiable}
        if was_wanted and not is_wanted and not sent.has(*_SPREADS, f"k:{msgspec.json.encode(key).decode()}"):
            yield remove(*_SPREADS, index)


def _remove_pod_terms(
    pod: Pod, plan: PlacementPlan, former: PlacementPlan, sent: SentFields, kind: str
) -> Iterator[PatchOperation]:
    namespace, labels = pod.metadata.namespace, pod.labels
    (wanted, own), (written, _) = (affinity.find_sides(pod, of, kind) for of in (plan, former))

    def mean(term: PodAffinityTerm) -> Hashable:
        return canonical_form.canonicalize_pod_term(term, namespace, labels)

    def mean_weighted(term: WeightedPodAffinityTerm) -> Hashable:
        return canonical_form.canonicalize_weighted(term, namespace, labels)

    yield from _remove_entries(own.required, wanted.required, written.required, mean, sent, kind, required.REQUIRED)
    yield from _remove_entries(own.preferred, wanted.preferred, written.preferred, mean_weighted, sent, kind)


def _remove_entries(
    own: Sequence[_T] | None,
    wanted: Sequence[PlannedEntry[_T]],
    written: Sequence[PlannedEntry[_T]],
    mean: Callable[[_T], Hashable],
    sent: SentFields,
    kind: str,
    field: str = affinity.PREFERRED,
) -> Iterator[PatchOperation]:
    if not own or not written or sent.has(*_AFFINITY, kind, field):
        return
    outdated = {mean(planned.entry) for planned in written} - {mean(planned.entry) for planned in wanted}
    for index in reversed(range(len(own))):
        if mean(own[index]) in outdated:
            yield remove(*_AFFINITY, kind, field, index)


def _remove_conditions(
    pod: Pod, plan: PlacementPlan, former: PlacementPlan, sent: SentFields
) -> Iterator[PatchOperation]:
    """Take the conditions of `former` out of the Pod's required terms, into each of which they were written."""
    terms = find_required_terms(pod.spec) or ()
    if plan.required == former.required or len(terms) > required.TERMS_MAX:
        return
    if sent.has(*_NODES, required.REQUIRED) and not _leaves_no_node(terms, plan):
        return
    written = {_mean(condition) for term in former.required for condition in term.asked}
    places = {index: [*_find_places(term, written)] for index, term in enumerate(terms)}
    counts = [len(NodeCondition.list_conditions(term)) for term in terms]
    emptied = {index for index, found in places.items() if found and len(found) == counts[index]}
    if terms and len(emptied) == len(terms):
        yield remove(*_NODES, required.REQUIRED)
        return
    for index in reversed(range(len(terms))):
        path = (*_NODES, required.REQUIRED, "nodeSelectorTerms", index)
        if index in emptied:
            yield remove(*path)
        else:
            yield from (remove(*path, *place) for place in reversed(places[index]))


def _leaves_no_node(terms: Sequence[NodeSelectorTerm], plan: PlacementPlan) -> bool:
    """Return whether no node can match any of the terms together with any of the policy's."""
    return bool(plan.required) and all(
        term_constraints(add_conditions(term, wanted.asked)) is None for term in terms for wanted in plan.required
    )


def _find_places(term: NodeSelectorTerm, written: Collection[Hashable]) -> Iterator[tuple[str, int]]:
    """Yield the list and the index of each condition of a term that is one of those written."""
    counts = {"matchExpressions": 0, "matchFields": 0}
    for condition in NodeCondition.list_conditions(term):
        name = "matchFields" if condition.is_field else "matchExpressions"
        if _mean(condition) in written:
            yield name, counts[name]
        counts[name] += 1


def _mean(condition: NodeCondition) -> Hashable:
    return condition.key, condition.requirement.operator, frozenset(condition.requirement.values or ())
