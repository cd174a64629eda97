"""Allowed values: what a tenant's Pod may set by itself, besides what the policy sets, by `placement.allow`.

As in PodTolerationRestriction, each toleration of the Pod must be covered by a listed one. Values that the API server
fills in are always allowed: the default scheduler, the global default class, and 300 s for not-ready and unreachable
nodes.
Source: kubernetes/plugin/pkg/admission/podtolerationrestriction, 1.36.
"""

from collections.abc import Collection, Iterator, Sequence

from webhook.core.findings import Code, Violation
from webhook.core.kubernetes.name_patterns import matches_any
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.types import Toleration
from webhook.core.placement import scalar_fields
from webhook.core.placement.plan import PlacementPlan
from webhook.core.placement.toleration_match import covers
from webhook.core.placement.tolerations import format_toleration
from webhook.core.policy_fields import Allowed

_VALUES_SHOWN_MAX = 3
API_SERVER_TOLERATIONS = tuple(
    Toleration(f"node.kubernetes.io/{condition}", "Exists", "", "NoExecute", 300)
    for condition in ("not-ready", "unreachable")
)
"""Tolerations that DefaultTolerationSeconds adds to each Pod, with the API server's default flags."""


def find_violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    """Return one violation for each field with values that are not allowed."""
    return [] if plan.allow == _ANYTHING else list(_check_values(pod, plan, plan.allow))


def has_requirements(plan: PlacementPlan) -> bool:
    """Return whether a Pod can violate the rules."""
    return plan.allow != _ANYTHING


_ANYTHING = Allowed()


def find_toleration_violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    """Return the violation by tolerations: a tenant may add some to a Pod that is not gated, too."""
    listed = plan.allow.tolerations
    if listed is None:
        return []
    return list(
        _build_violation(
            "spec.tolerations",
            "tolerations",
            _list_foreign_tolerations(pod, plan, listed),
            list(map(format_toleration, listed)),
        )
    )


def _check_values(pod: Pod, plan: PlacementPlan, allow: Allowed) -> Iterator[Violation]:
    yield from find_toleration_violations(pod, plan)
    if allow.node_selector_keys is not None:
        permitted = {*allow.node_selector_keys, *plan.node_selector}
        keys = [key for key in pod.spec.node_selector or {} if key not in permitted]
        yield from _build_violation("spec.nodeSelector", "nodeSelectorKeys", keys, allow.node_selector_keys)
    for field in scalar_fields.FIELDS:
        names = _find_names(allow, field)
        own = None if names is None else scalar_fields.find_users_value(pod, plan, field)
        if names is not None and own is not None and forbids_scalar(plan, field, own):
            yield from _build_violation(f"spec.{field}", f"{field}s", [own], names)


def forbids_scalar(plan: PlacementPlan, field: str, own: str) -> bool:
    """Return whether a Pod may not have a value of its own in a scalar field."""
    names = _find_names(plan.allow, field)
    return names is not None and scalar_fields.may_stay(plan, field) and not matches_any(names, own)


def _find_names(allow: Allowed, field: str) -> tuple[str, ...] | None:
    """Return the names that Pods may have in a scalar field, None if they may have any."""
    names: tuple[str, ...] | None = getattr(allow, f"{scalar_fields.FIELDS[field]}s")
    return names


def _list_foreign_tolerations(pod: Pod, plan: PlacementPlan, listed: Sequence[Toleration]) -> list[str]:
    permitted = (*listed, *(planned.entry for planned in plan.tolerations), *API_SERVER_TOLERATIONS)
    return [
        format_toleration(own)
        for own in dict.fromkeys(map(_add_operator, pod.spec.tolerations or ()))
        if not any(covers(allowed, own) for allowed in permitted)
    ]


def _add_operator(own: Toleration) -> Toleration:
    if own.operator:
        return own
    return Toleration(own.key, "Equal", own.value, own.effect, own.toleration_seconds)


def _build_violation(field: str, listed: str, values: Sequence[str], allowed: Collection[str]) -> Iterator[Violation]:
    if not values:
        return
    words = f"only {_join_shown(list(allowed))}" if allowed else "nothing"
    verb = "is" if listed.endswith("Names") else "has"
    text = (
        f"{field} {verb} {_join_shown(values)}, and placement.allow.{listed} allows {words}:"
        " remove it from the Pod, or have the policy's owner allow it"
    )
    yield Violation(Code.PLACEMENT_NOT_ALLOWED, field, f"allow {listed} {' '.join(values)}", text)


def _join_shown(values: Sequence[str]) -> str:
    more = len(values) - _VALUES_SHOWN_MAX
    return ", ".join([*values[:_VALUES_SHOWN_MAX], *([f"{more} more"] if more > 0 else [])])
