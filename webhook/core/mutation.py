"""The mutating half's patch: what a Pod lacks of its service's placement, added once and never again."""

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from webhook.core.kubernetes import NodeRequirement, NodeSelectorTerm, Toleration
from webhook.core.patch import Operation, add, remove, replace, set_keys
from webhook.core.pod import Pod
from webhook.core.policy import Service
from webhook.core.stanzas import ConflictRules, Mode, OnConflict, Placement, TopologyEntry

SERVICE_LABEL = "podgate.io/service"
HASH_ANNOTATION = "podgate.io/policy-hash"
DISOWN = (remove("metadata", "labels", SERVICE_LABEL),)
"""Takes a service's label off a Pod that no service owns: it would pass for theirs later."""
DEFAULT_SCHEDULER = "default-scheduler"
_REQUIRED = ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


def rewrite(pod: Pod, service: Service, policy_hash: str) -> tuple[Operation, ...]:
    """Return the patch that makes the Pod its service's; empty where it already is. f(f(x)) = f(x)."""
    if service.modes.all_disabled():
        return ()
    operations = set_keys(("metadata", "labels"), pod.metadata.labels, {SERVICE_LABEL: service.name})
    operations += set_keys(("metadata", "annotations"), pod.metadata.annotations, {HASH_ANNOTATION: policy_hash})
    if service.placement is not None and service.modes.placement is Mode.ENFORCE:
        operations += _place(pod, service.placement)
    return tuple(operations)


def rule_for(rules: ConflictRules, field: str) -> OnConflict:
    """Return what to do where the Pod's own `field` contradicts the policy."""
    chosen: OnConflict | None = getattr(rules, field)
    return rules.default if chosen is None else chosen


def scheduler_conflicts(pod: Pod, wanted: str) -> bool:
    """Say whether the user asked for another scheduler; the API server has defaulted an empty name already."""
    return (pod.spec.scheduler_name or DEFAULT_SCHEDULER) not in {DEFAULT_SCHEDULER, wanted}


def required_expressions(placement: Placement) -> tuple[NodeRequirement, ...]:
    """Return the required topology as node expressions, one a label: entries on the same label are intersected."""
    return _required(placement.topology)


@lru_cache(maxsize=4096)
def _required(topology: tuple[TopologyEntry, ...]) -> tuple[NodeRequirement, ...]:
    by_label: dict[str, tuple[str, ...]] = {}
    for entry in topology:
        if entry.preferred_weight is None:
            known = by_label.get(entry.label, entry.values)
            by_label[entry.label] = tuple(value for value in known if value in entry.values)
    return tuple(NodeRequirement(label, "In", values) for label, values in by_label.items())


def implied(term: NodeSelectorTerm, wanted: NodeRequirement) -> bool:
    """Say whether a term already restricts a node at least as much as `wanted`; one that matches nothing does."""
    if not term.match_expressions and not term.match_fields:
        return True
    own_expressions = term.match_expressions or ()
    if wanted.values and wanted in own_expressions:
        return True  # our own, as a rewrite leaves it
    return any(
        own.key == wanted.key and own.operator == "In" and own.values and set(own.values) <= set(wanted.values or ())
        for own in own_expressions
    )


def covers(own: Toleration, wanted: Toleration) -> bool:
    """Say whether every taint that `wanted` tolerates is tolerated by `own`, for at least as long."""
    key = own.key == wanted.key or (own.key == "" and own.operator == "Exists")
    value = own.operator == "Exists" or ((own.operator or "Equal"), own.value) == (wanted.operator, wanted.value)
    effect = own.effect in {"", wanted.effect}
    seconds = own.toleration_seconds is None or (
        wanted.toleration_seconds is not None and own.toleration_seconds >= wanted.toleration_seconds
    )
    return key and value and effect and seconds


def missing_tolerations(pod: Pod, placement: Placement) -> list[Toleration]:
    """Return what the Pod does not tolerate yet, in the policy's order; one that another of them covers is left out."""
    own = pod.spec.tolerations or ()
    lacking = [
        wanted
        for wanted in placement.tolerations
        if wanted not in own and not any(covers(have, wanted) for have in own)
    ]
    if len(lacking) <= 1:
        return lacking
    return [
        wanted
        for index, wanted in enumerate(lacking)
        if not any(
            covers(other, wanted) and (place < index or not covers(wanted, other))
            for place, other in enumerate(lacking)
            if place != index
        )
    ]


def _place(pod: Pod, placement: Placement) -> list[Operation]:
    return [
        *_scheduler_name(pod, placement),
        *_node_selector(pod, placement),
        *_topology(pod, required_expressions(placement)),
        *_tolerations(pod, missing_tolerations(pod, placement)),
    ]


def _scheduler_name(pod: Pod, placement: Placement) -> list[Operation]:
    wanted, own = placement.scheduler_name, pod.spec.scheduler_name
    if wanted is None or own == wanted:
        return []
    overrides = rule_for(placement.on_conflict, "scheduler_name") is OnConflict.OVERRIDE
    if scheduler_conflicts(pod, wanted) and not overrides:
        return []
    return [(add if own is None else replace)(wanted, "spec", "schedulerName")]


def _node_selector(pod: Pod, placement: Placement) -> list[Operation]:
    own = pod.spec.node_selector
    wanted = placement.node_selector
    if rule_for(placement.on_conflict, "node_selector") is not OnConflict.OVERRIDE:
        wanted = {key: value for key, value in wanted.items() if key not in (own or {})}
    return set_keys(("spec", "nodeSelector"), own, wanted)


def _topology(pod: Pod, wanted: Sequence[NodeRequirement]) -> list[Operation]:
    """AND the expressions into every term: terms are ORed, so one left out would be a way to escape."""
    if not wanted:
        return []
    expressions = [_plain(requirement) for requirement in wanted]
    value: object = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    affinity = pod.spec.affinity
    if affinity is None:
        return [add({_REQUIRED[2]: {_REQUIRED[3]: value}}, *_REQUIRED[:2])]
    if affinity.node_affinity is None:
        return [add({_REQUIRED[3]: value}, *_REQUIRED[:3])]
    selector = affinity.node_affinity.requiredDuringSchedulingIgnoredDuringExecution
    if selector is None:
        return [add(value, *_REQUIRED)]
    operations: list[Operation] = []
    for index, term in enumerate(selector.node_selector_terms or ()):
        lacking = [_plain(requirement) for requirement in wanted if not implied(term, requirement)]
        path = (*_REQUIRED, "nodeSelectorTerms", index, "matchExpressions")
        if lacking and term.match_expressions is None:
            operations.append(add(lacking, *path))
        else:
            operations += [add(expression, *path, "-") for expression in lacking]
    return operations


def _tolerations(pod: Pod, lacking: Sequence[Toleration]) -> list[Operation]:
    own = pod.spec.tolerations
    if lacking and own is None:
        return [add([msgspec.to_builtins(toleration) for toleration in lacking], "spec", "tolerations")]
    return [
        add(msgspec.to_builtins(toleration), "spec", "tolerations", 0 if _prolongs(toleration, own or ()) else "-")
        for toleration in lacking
    ]


def _prolongs(wanted: Toleration, own: Sequence[Toleration]) -> bool:
    """Say whether the Pod has a shorter one for the same key: the first that fits a taint decides when to evict.

    DefaultTolerationSeconds has put 300 s for not-ready and unreachable into most Pods before we see them.
    """
    return any(
        have.key == wanted.key
        and have.toleration_seconds is not None
        and (wanted.toleration_seconds is None or have.toleration_seconds < wanted.toleration_seconds)
        for have in own
    )


def _plain(requirement: NodeRequirement) -> dict[str, object]:
    return {"key": requirement.key, "operator": requirement.operator, "values": list(requirement.values or ())}
