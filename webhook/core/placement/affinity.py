"""Affinity: the patch of the Pod's `affinity`, in the largest missing pieces, and violations of pod affinity."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

from webhook.core.findings import Code, Violation
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.types import PodAffinity, PodAffinityTerm
from webhook.core.patch import PatchOperation, add, append
from webhook.core.placement import canonical_form, node_terms, required
from webhook.core.placement.node_match import find_required_terms
from webhook.core.placement.plan import PlacementPlan, PlannedEntry, PodTerms

T = TypeVar("T")

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_PATH = ("spec", "affinity")
_NOTHING = PodAffinity()
_WORDS = {"podAffinity": "required pod affinity", "podAntiAffinity": "required pod anti-affinity"}


def build_operations(pod: Pod, plan: PlacementPlan) -> list[PatchOperation]:
    """Return the operations that apply the policy's affinity, required and preferred."""
    if not plan.has_affinity:
        return []
    affinity = pod.spec.affinity
    kinds = {
        "nodeAffinity": _build_node_affinity(pod, plan),
        "podAffinity": _build_pod_terms(pod, plan, "podAffinity"),
        "podAntiAffinity": _build_pod_terms(pod, plan, "podAntiAffinity"),
    }
    if affinity is None:
        return [add({kind: parts.new for kind, parts in kinds.items() if parts.new}, *_PATH)]
    own = {
        "nodeAffinity": affinity.node_affinity,
        "podAffinity": affinity.pod_affinity,
        "podAntiAffinity": affinity.pod_anti_affinity,
    }
    found: list[PatchOperation] = []
    for kind, parts in kinds.items():
        if parts.new and own[kind] is None:
            found.append(add(parts.new, *_PATH, kind))
        else:
            found += [add(value, *_PATH, kind, field) for field, value in parts.new.items()]
        found += parts.changes
    return found


class _Parts(NamedTuple):
    """Fields that the Pod does not have yet, and operations on those that it has."""

    new: dict[str, Any]
    changes: list[PatchOperation]

    def put(self, lacking: list[Any], own: Sequence[Any] | None, kind: str, field: str) -> None:
        if lacking and own is None:
            self.new[field] = lacking
        elif lacking:
            self.changes.extend(append(lacking, own, *_PATH, kind, field))


def _build_node_affinity(pod: Pod, plan: PlacementPlan) -> _Parts:
    parts = _Parts({}, [])
    affinity = pod.spec.affinity
    own = affinity.node_affinity if affinity is not None else None
    if plan.required:
        terms = find_required_terms(pod.spec)
        if terms is None:
            parts.new.update(required.build_required_field(plan))
        else:
            parts.changes.extend(required.narrow_terms(terms, plan))
    if plan.preferred:
        preferred = own.preferred if own is not None else None
        parts.put(
            _list_lacking(preferred, plan.preferred, canonical_form.canonicalize_preferred),
            preferred,
            "nodeAffinity",
            PREFERRED,
        )
    return parts


def _build_pod_terms(pod: Pod, plan: PlacementPlan, kind: str) -> _Parts:
    parts = _Parts({}, [])
    wanted, own = find_sides(pod, plan, kind)
    namespace, labels = pod.metadata.namespace, pod.labels
    if wanted.required:
        lacking = _list_lacking(
            own.required, wanted.required, lambda term: canonical_form.canonicalize_pod_term(term, namespace, labels)
        )
        parts.put(lacking, own.required, kind, required.REQUIRED)
    if wanted.preferred:
        lacking = _list_lacking(
            own.preferred, wanted.preferred, lambda term: canonical_form.canonicalize_weighted(term, namespace, labels)
        )
        parts.put(lacking, own.preferred, kind, PREFERRED)
    return parts


def find_sides(pod: Pod, plan: PlacementPlan, kind: str) -> tuple[PodTerms, PodAffinity]:
    """Return the policy's terms and the Pod's."""
    affinity = pod.spec.affinity
    if kind == "podAffinity":
        return plan.pod_affinity, (affinity.pod_affinity if affinity is not None else None) or _NOTHING
    return plan.pod_anti_affinity, (affinity.pod_anti_affinity if affinity is not None else None) or _NOTHING


def _list_lacking(
    own: Sequence[T] | None, wanted: Sequence[PlannedEntry[T]], mean: Callable[[T], Hashable]
) -> list[Any]:
    """Return, as JSON, the wanted entries without an equivalent in `own`."""
    return [entry.plain for entry in _find_missing(own, wanted, mean)]


def _find_missing(
    own: Sequence[T] | None, wanted: Sequence[PlannedEntry[T]], mean: Callable[[T], Hashable]
) -> list[PlannedEntry[T]]:
    if not own and len(wanted) == 1:
        return list(wanted)
    known = {mean(entry) for entry in own or ()}
    missing: list[PlannedEntry[T]] = []
    for planned in wanted:
        # The Pod's namespace and the labels merged by matchLabelKeys may change what an entry means for this Pod.
        meant = mean(planned.entry)
        if meant not in known:
            known.add(meant)
            missing.append(planned)
    return missing


def find_violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    """Return the violations of required pod affinity and anti-affinity; for node affinity see `required`."""
    return [
        Violation(
            Code.PLACEMENT_UNFULFILLED,
            f"spec.affinity.{kind}.{required.REQUIRED}",
            f"{kind} {words}",
            f"{_WORDS[kind]} lacks {words}",
        )
        for kind in _WORDS
        for words in _describe_missing(pod, plan, kind)
    ]


def _describe_missing(pod: Pod, plan: PlacementPlan, kind: str) -> list[str]:
    wanted, own = find_sides(pod, plan, kind)
    if not wanted.required:
        return []
    namespace, labels = pod.metadata.namespace, pod.labels
    missing = _find_missing(
        own.required, wanted.required, lambda term: canonical_form.canonicalize_pod_term(term, namespace, labels)
    )
    return [_format_term(planned.entry) for planned in missing]


def _format_term(term: PodAffinityTerm) -> str:
    return f"{term.topology_key} {node_terms.format_selector(term.label_selector)}"
