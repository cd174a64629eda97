"""Entries of a service's placement and resources, by their path in the policy, with the service reduced to each.

The effect of an entry is determined by rewriting a Pod with that reduced service.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec.structs import replace

from webhook.core.kubernetes.types import Affinity, NodeAffinity, PodAffinity, Toleration
from webhook.core.placement import VARIANT_LABEL
from webhook.core.policy.model import Modes, Service
from webhook.core.policy_fields import (
    ContainerRange,
    LabelSource,
    Placement,
    QosClass,
    ResourceRules,
    TolerationsByQosClass,
    TopologyEntry,
)


class EntryKind(StrEnum):
    """Kind of an entry, which selects its description."""

    LABEL = "label"
    ANNOTATION = "annotation"
    SINGLE = "single"
    NODE_SELECTOR = "nodeSelector"
    REQUIRED_NODES = "required nodes"
    TERMS = "terms"
    SPREAD = "spread"
    TOLERATION = "toleration"
    DEFAULT = "default"
    BOUND = "bound"
    RATIO = "ratio"
    OF_PODS = "of whole Pods"
    REMOVAL = "removal"
    FORBIDDEN = "forbidden"


class PolicyEntry(NamedTuple):
    """One entry. `alone` is the service with only this entry, `rest` the one without it.

    `key`: a label or resource, or the QoS class that the Pod has, for tolerations of one class. `source`: the label
    that a value is copied from.
    """

    rule: str
    kind: EntryKind
    alone: Service
    rest: Service
    key: str = ""
    is_wish: bool = False
    source: LabelSource | None = None

    @property
    def concern(self) -> str:
        return self.rule.partition(".")[0]

    @property
    def amount(self) -> str:
        """The amount of an entry of `resources`, "" for others."""
        rules = self.alone.resources
        both = () if rules is None else (rules.container, rules.init_container)
        every = (amounts for own in both for amounts in (own.default_request, own.default, own.min, own.max))
        return next((str(amounts[self.key]) for amounts in every if self.key in amounts), "")

    @property
    def is_share(self) -> bool:
        """Whether the entry makes a request a share of its limit."""
        return ".defaultRequestRatio[" in self.rule

    @property
    def ratio(self) -> str:
        """The ratio of an entry of `resources.container`, "" for others."""
        rules = self.alone.resources
        if rules is None:
            return ""
        container = rules.container
        ratios = (container.default_limit_ratio, container.default_request_ratio, container.max_limit_request_ratio)
        return next((str(amounts[self.key]) for amounts in ratios if self.key in amounts), "")


class _Part(NamedTuple):
    """One entry as the fields of its stanza that remain with it alone, and without it."""

    path: str
    kind: EntryKind
    alone: Mapping[str, Any]
    rest: Mapping[str, Any]
    key: str = ""
    is_wish: bool = False


def strip_rules(service: Service) -> Service:
    """Return the service without placement and resources, with all modes Enforce."""
    return replace(service, placement=None, resources=None, modes=Modes())


def reduce_to_class(service: Service, qos: QosClass | None) -> Service:
    """Return the service as it is for Pods of one QoS class."""
    if service.placement is None or qos is None:
        return service
    return replace(service, placement=_reduce_placement(service.placement, qos))


def _reduce_placement(placement: Placement, qos: QosClass | None) -> Placement:
    more = () if qos is None else placement.tolerations_by_qos_class.list_by_class().get(qos, ())
    tolerations = (*placement.tolerations, *more)
    return replace(placement, tolerations=tolerations, tolerations_by_qos_class=TolerationsByQosClass())


def list_entries(service: Service, qos: QosClass | None = None) -> list[PolicyEntry]:
    """Return every entry that can change a Pod, as if all were enforced, in the order of the patch.

    Services are reduced to the rules for a Pod of the class `qos`: without it, tolerations by class do nothing.
    """
    only, others = strip_rules(service), replace(reduce_to_class(service, qos), modes=Modes())
    found: list[PolicyEntry] = []
    for concern, whole, nothing, parts in _list_stanzas(service, qos):
        for part in parts:
            alone = replace(only, **{concern: replace(nothing, **part.alone)})
            rest = replace(others, **{concern: replace(whole, **part.rest)})
            found.append(PolicyEntry(f"{concern}.{part.path}", part.kind, alone, rest, part.key, part.is_wish))
    return found


def locate_variant_entries(service: Service, name: str) -> dict[str, str]:
    """Return where the policy has the entries that a variant of a service adds, by their names without shares."""
    placement = service.placement
    if placement is None or placement.shares is None:
        return {}
    index, variant = next(
        (index, variant) for index, variant in enumerate(placement.shares.variants) if variant.name == name
    )
    whole, own = "placement.", f"placement.shares.variants[{index}]."
    found = {f"{whole}labels[{VARIANT_LABEL}]": f"{own}name"}
    for key in variant.node_selector.keys() - placement.node_selector.keys():
        found[f"{whole}nodeSelector[{key}]"] = f"{own}nodeSelector[{key}]"
    before = len(placement.tolerations)
    for place in range(len(variant.tolerations)):
        found[f"{whole}tolerations[{before + place}]"] = f"{own}tolerations[{place}]"
    return found


def _list_stanzas(service: Service, qos: QosClass | None) -> Iterator[tuple[str, Any, Any, Iterator[_Part]]]:
    """Yield each stanza, and an empty one of its kind with the same settings for the whole stanza."""
    placement, rules = service.placement, service.resources
    if placement is not None:
        # Settings for the whole Pod are not the effect of an entry.
        nothing = Placement(allow_node_name=True, on_conflict=placement.on_conflict, if_absent=placement.if_absent)
        yield "placement", _reduce_placement(placement, qos), nothing, _list_placement(placement, qos)
    if rules is not None:
        empty = ResourceRules(container=ContainerRange(ignore=rules.container.ignore), when_outside=rules.when_outside)
        yield "resources", rules, empty, _list_resources(rules, empty)


def _list_placement(placement: Placement, qos: QosClass | None) -> Iterator[_Part]:
    for field, kind in (("labels", EntryKind.LABEL), ("annotations", EntryKind.ANNOTATION)):
        whole: Mapping[str, Any] = getattr(placement, field)
        for key, value in whole.items():
            yield _Part(f"{field}[{key}]", kind, {field: {key: value}}, {field: _drop_key(whole, key)}, key)
    for path, field in _SINGLES.items():
        value = getattr(placement, field)
        if value is not None:
            yield _Part(path, EntryKind.SINGLE, {field: value}, {field: None})
    for key, value in placement.node_selector.items():
        others = {"node_selector": _drop_key(placement.node_selector, key)}
        yield _Part(f"nodeSelector[{key}]", EntryKind.NODE_SELECTOR, {"node_selector": {key: value}}, others, key)
    yield from _list_topology(placement.topology)
    for path, kind, alone, rest, is_wish in _list_affinity(placement.affinity):
        yield _Part(f"affinity.{path}", kind, {"affinity": alone}, {"affinity": rest}, is_wish=is_wish)
    spreads = "topology_spread_constraints"
    for index, constraint, rest_of in _enumerate_with_others(placement.topology_spread_constraints):
        is_wish = constraint.when_unsatisfiable == "ScheduleAnyway"
        path = f"topologySpreadConstraints[{index}]"
        yield _Part(path, EntryKind.SPREAD, {spreads: (constraint,)}, {spreads: rest_of}, is_wish=is_wish)
    yield from _list_tolerations(placement.tolerations, placement.tolerations_by_qos_class.list_by_class(), qos)


def _list_tolerations(
    own: tuple[Toleration, ...], of_each: Mapping[QosClass, tuple[Toleration, ...]], qos: QosClass | None
) -> Iterator[_Part]:
    """Yield entries; those of a class do nothing to Pods of another one."""
    more = () if qos is None else of_each.get(qos, ())
    kind, field = EntryKind.TOLERATION, "tolerations"
    for index, toleration, others in _enumerate_with_others(own):
        yield _Part(f"tolerations[{index}]", kind, {field: (toleration,)}, {field: (*others, *more)})
    for name, some in of_each.items():
        alone, rest = (some, own) if name is qos else ((), (*own, *more))
        yield _Part(f"tolerationsByQosClass[{name}]", kind, {field: alone}, {field: rest}, qos or "")


_SINGLES = {
    "schedulerName": "scheduler_name",
    "priorityClassName": "priority_class_name",
    "runtimeClassName": "runtime_class_name",
}


def _list_topology(topology: Sequence[TopologyEntry]) -> Iterator[_Part]:
    """Yield entries; required ones on one label are intersected, so they are one entry."""
    groups: dict[tuple[str, int | None], list[int]] = {}
    for index, entry in enumerate(topology):
        groups.setdefault((entry.label, None if entry.preferred_weight is None else index), []).append(index)
    for (label, wish), places in groups.items():
        mine = tuple(topology[place] for place in places)
        others = tuple(entry for place, entry in enumerate(topology) if place not in places)
        path = " and ".join(f"topology[{place}]" for place in places)
        kind = EntryKind.REQUIRED_NODES if wish is None else EntryKind.TERMS
        yield _Part(path, kind, {"topology": mine}, {"topology": others}, label, is_wish=wish is not None)


def _list_affinity(affinity: Affinity) -> Iterator[tuple[str, EntryKind, Affinity, Affinity, bool]]:
    nodes = affinity.node_affinity
    if nodes is not None and nodes.required is not None:
        alone = Affinity(node_affinity=NodeAffinity(required=nodes.required))
        rest = replace(affinity, node_affinity=replace(nodes, required=None))
        yield "nodeAffinity.required", EntryKind.REQUIRED_NODES, alone, rest, False
    for word, field, own in (
        ("nodeAffinity", "node_affinity", nodes and replace(nodes, required=None)),
        ("podAffinity", "pod_affinity", affinity.pod_affinity),
        ("podAntiAffinity", "pod_anti_affinity", affinity.pod_anti_affinity),
    ):
        if own is None:
            continue
        nothing: Any = NodeAffinity() if isinstance(own, NodeAffinity) else PodAffinity()
        for side in ("required", "preferred"):
            for index, term, others in _enumerate_with_others(getattr(own, side) or ()):
                alone = replace(Affinity(), **{field: replace(nothing, **{side: (term,)})})
                whole: Any = getattr(affinity, field)
                rest = replace(affinity, **{field: replace(whole, **{side: others})})
                yield f"{word}.{side}[{index}]", EntryKind.TERMS, alone, rest, side == "preferred"


def _list_resources(rules: ResourceRules, nothing: ResourceRules) -> Iterator[_Part]:
    if rules.pod.qos_classes is not None:
        alone = {"pod": replace(nothing.pod, qos_classes=rules.pod.qos_classes)}
        yield _Part("pod.qosClasses", EntryKind.OF_PODS, alone, {"pod": replace(rules.pod, qos_classes=None)})
    for field, kind in (("remove", EntryKind.REMOVAL), ("forbid", EntryKind.FORBIDDEN)):
        for _, name, others in _enumerate_with_others(getattr(rules.container, field)):
            with_it = replace(nothing.container, **{field: (name,)})
            without = replace(rules.container, **{field: others})
            key = name.removeprefix("limits.")
            yield _Part(f"container.{field}[{name}]", kind, {"container": with_it}, {"container": without}, key)
    for part, field, word, kind in _WORDS:
        amounts = getattr(getattr(rules, part), field)
        for name, amount in amounts.items():
            with_it = replace(getattr(nothing, part), **{field: {name: amount}})
            without = replace(getattr(rules, part), **{field: _drop_key(amounts, name)})
            owner = "initContainer" if part == "init_container" else part
            yield _Part(f"{owner}.{word}[{name}]", kind, {part: with_it}, {part: without}, name)


_WORDS = (
    ("container", "default_request", "defaultRequest", EntryKind.DEFAULT),
    ("container", "default", "default", EntryKind.DEFAULT),
    ("container", "min", "min", EntryKind.BOUND),
    ("container", "max", "max", EntryKind.BOUND),
    ("container", "default_limit_ratio", "defaultLimitRatio", EntryKind.DEFAULT),
    ("container", "default_request_ratio", "defaultRequestRatio", EntryKind.RATIO),
    ("container", "max_limit_request_ratio", "maxLimitRequestRatio", EntryKind.RATIO),
    ("init_container", "default_request", "defaultRequest", EntryKind.DEFAULT),
    ("init_container", "default", "default", EntryKind.DEFAULT),
    ("init_container", "min", "min", EntryKind.BOUND),
    ("init_container", "max", "max", EntryKind.BOUND),
    ("pod", "min", "min", EntryKind.OF_PODS),
    ("pod", "max", "max", EntryKind.OF_PODS),
    ("pod", "max_limit_request_ratio", "maxLimitRequestRatio", EntryKind.OF_PODS),
)


def _drop_key(items: Mapping[str, Any], gone: str) -> dict[str, Any]:
    return {key: value for key, value in items.items() if key != gone}


def _enumerate_with_others(items: Sequence[Any]) -> Iterator[tuple[int, Any, tuple[Any, ...]]]:
    for index, item in enumerate(items):
        yield index, item, (*items[:index], *items[index + 1 :])
