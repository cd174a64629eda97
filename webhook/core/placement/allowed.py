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
from webhook.core.placement.tolerations import in_words
from webhook.core.policy_spec import Allowed

_MOST_SHOWN = 3
_OF_THE_API_SERVER = tuple(
    Toleration(f"node.kubernetes.io/{condition}", "Exists", "", "NoExecute", 300)
    for condition in ("not-ready", "unreachable")
)
"""Tolerations that DefaultTolerationSeconds adds to each Pod, with the API server's default flags."""


def violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    """Return one violation for each field with values that are not allowed."""
    return [] if plan.allow == _ANYTHING else list(_violations(pod, plan, plan.allow))


def requires(plan: PlacementPlan) -> bool:
    """Return whether a Pod can violate the rules."""
    return plan.allow != _ANYTHING


_ANYTHING = Allowed()


def toleration_violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    """Return the violation by tolerations: a tenant may add some to a Pod that is not gated, too."""
    listed = plan.allow.tolerations
    if listed is None:
        return []
    return list(
        _outside("spec.tolerations", "tolerations", _tolerations(pod, plan, listed), list(map(in_words, listed)))
    )


def _violations(pod: Pod, plan: PlacementPlan, allow: Allowed) -> Iterator[Violation]:
    yield from toleration_violations(pod, plan)
    if allow.node_selector_keys is not None:
        permitted = {*allow.node_selector_keys, *plan.node_selector}
        keys = [key for key in pod.spec.node_selector or {} if key not in permitted]
        yield from _outside("spec.nodeSelector", "nodeSelectorKeys", keys, allow.node_selector_keys)
    for field, listed, names in (
        ("schedulerName", "schedulerNames", allow.scheduler_names),
        ("priorityClassName", "priorityClassNames", allow.priority_class_names),
        ("runtimeClassName", "runtimeClassNames", allow.runtime_class_names),
    ):
        own = None if names is None else scalar_fields.users_value(pod, plan, field)
        if names is None or own is None or not scalar_fields.may_stay(plan, field):
            continue
        if not matches_any(names, own):
            yield from _outside(f"spec.{field}", listed, [own], names)


def _tolerations(pod: Pod, plan: PlacementPlan, listed: Sequence[Toleration]) -> list[str]:
    permitted = (*listed, *(planned.entry for planned in plan.tolerations), *_OF_THE_API_SERVER)
    return [
        in_words(own)
        for own in dict.fromkeys(map(_with_operator, pod.spec.tolerations or ()))
        if not any(covers(allowed, own) for allowed in permitted)
    ]


def _with_operator(own: Toleration) -> Toleration:
    if own.operator:
        return own
    return Toleration(own.key, "Equal", own.value, own.effect, own.toleration_seconds)


def _outside(field: str, listed: str, values: Sequence[str], allowed: Collection[str]) -> Iterator[Violation]:
    if not values:
        return
    words = f"only {_listed(list(allowed))}" if allowed else "nothing"
    verb = "is" if listed.endswith("Names") else "has"
    text = (
        f"{field} {verb} {_listed(values)}, and placement.allow.{listed} allows {words}:"
        " remove it from the Pod, or have the policy's owner allow it"
    )
    yield Violation(Code.PLACEMENT_NOT_ALLOWED, field, f"allow {listed} {' '.join(values)}", text)


def _listed(values: Sequence[str]) -> str:
    more = len(values) - _MOST_SHOWN
    return ", ".join([*values[:_MOST_SHOWN], *([f"{more} more"] if more > 0 else [])])
