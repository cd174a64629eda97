"""Labels and annotations that other schedulers read: literals, or labels of the Pod or of its Namespace.

Labels of the Namespace are written into the plan before it is used. If its label is absent, a value is its `default`;
without a default it is not set.
"""

from collections.abc import Iterable, Mapping

from webhook.core.findings import Code, Violation, shorten_value
from webhook.core.kubernetes.pod import Pod
from webhook.core.placement.plan import PlacementPlan
from webhook.core.placement.scalar_fields import build_difference
from webhook.core.policy_fields import LabelSource, OnConflict, Placement

Values = Mapping[str, str | LabelSource]
_KINDS = ("labels", "annotations")


def compute_labels(pod: Pod, plan: PlacementPlan) -> dict[str, str]:
    """Return the labels to write into a new Pod."""
    return _compute_due(pod, plan, "labels")


def compute_annotations(pod: Pod, plan: PlacementPlan) -> dict[str, str]:
    """Return the annotations to write into a new Pod."""
    return _compute_due(pod, plan, "annotations")


def _compute_due(pod: Pod, plan: PlacementPlan, kind: str) -> dict[str, str]:
    wanted, own = _find_sides(pod, plan, kind)
    if wanted and plan.find_rule(kind) is not OnConflict.OVERRIDE:
        return {key: value for key, value in wanted.items() if key not in own}
    return wanted


def find_violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    """Return the violations by missing and different values of a new Pod."""
    found = []
    for kind in _KINDS:
        wanted, own = _find_sides(pod, plan, kind)
        for key, value in wanted.items():
            rule, has = plan.find_rule(kind), own.get(key)
            if has != value and (has is None or rule is not OnConflict.KEEP):
                is_users = has is not None and rule is OnConflict.DENY
                found.append(build_difference(f"metadata.{kind}[{key}]", has, value, is_users=is_users))
    return found


def find_changes(old: Pod, new: Pod, plan: PlacementPlan) -> list[Violation]:
    """Return the values of the policy that an UPDATE changes or removes.

    Under Keep, a Pod with scheduling gates may still choose its own. An UPDATE may write the policy's value, as into a
    Pod that is older than the policy.
    """
    found = []
    for kind in _KINDS:
        values = _values_of(plan, kind)
        before, after = (getattr(pod, kind) for pod in (old, new))
        if not values or before == after:
            continue
        wanted = resolve_values(values, old.labels)
        for key in values:
            was, asked = before.get(key), after.get(key)
            may_choose = plan.find_rule(kind) is OnConflict.KEEP and bool(old.spec.scheduling_gates)
            is_kept = may_choose and (asked is not None or key not in wanted)
            if was != asked and asked != wanted.get(key, was) and not is_kept:
                found.append(_build_change(f"metadata.{kind}[{key}]", was, asked))
    return found


def _build_change(field: str, was: str | None, asked: str | None) -> Violation:
    before, after = ("absent" if value is None else repr(shorten_value(value)) for value in (was, asked))
    text = f"{field} is set by the policy and cannot be changed (was {before}, asked {after}); leave it as it is"
    return Violation(Code.PLACEMENT_CONFLICT, field, field, text)


def resolve_values(values: Values, pod_labels: Mapping[str, str]) -> dict[str, str]:
    """Return the values for a Pod with these labels, without those whose label is absent and has no default."""
    found = {}
    for key, value in values.items():
        own = value if isinstance(value, str) else pod_labels.get(value.from_pod or "", value.default)
        if own is not None:
            found[key] = own
    return found


def list_namespace_keys(placement: Placement | None) -> tuple[str, ...]:
    """Return the labels of a Namespace that a placement reads."""
    if placement is None:
        return ()
    sources = _list_sources((placement.labels, placement.annotations))
    return tuple(dict.fromkeys(source.from_namespace for source in sources if source.from_namespace is not None))


def resolve_namespace_labels(placement: Placement, namespace_labels: Mapping[str, str]) -> dict[str, Values]:
    """Return the labels and annotations of a placement with the labels of a Namespace as literals."""
    return {
        kind: {
            key: value if isinstance(value, str) else namespace_labels.get(value.from_namespace or "", value)
            for key, value in getattr(placement, kind).items()
        }
        for kind in _KINDS
    }


def _list_sources(of: Iterable[Values]) -> list[LabelSource]:
    return [value for values in of for value in values.values() if isinstance(value, LabelSource)]


def _find_sides(pod: Pod, plan: PlacementPlan, kind: str) -> tuple[dict[str, str], Mapping[str, str]]:
    """Return the policy's values for a Pod, and the Pod's own."""
    values = _values_of(plan, kind)
    own: Mapping[str, str] = getattr(pod, kind)
    return (resolve_values(values, pod.labels) if values else {}), own


def _values_of(plan: PlacementPlan, kind: str) -> Values:
    return plan.labels if kind == "labels" else plan.annotations
