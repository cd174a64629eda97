"""Scalar fields (schedulerName, classes, nodeName) and nodeSelector: set, or resolved by onConflict.

Admission plugins of the API server fill in fields that depend on priorityClassName and runtimeClassName, once before
the webhooks and, after a change, once more. The values for the former name must be removed: the second run rejects a
Pod whose priority, preemptionPolicy or overhead disagrees.

The node's kubelet still checks required node affinity and nodeSelector. Only new Pods are checked: later the
scheduler sets the field.
"""

import msgspec
from msgspec import Struct, field

from webhook.core.findings import Code, Violation, shorten_value
from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.kubernetes.pod import Pod, PodMetadata
from webhook.core.patch import PatchOperation, add, remove, replace, set_keys
from webhook.core.placement.plan import PlacementPlan
from webhook.core.policy_fields import OnConflict

_FIELD = "spec.nodeName"


def find_node_name_violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    own = pod.spec.node_name
    if not own or plan.allow_node_name:
        return []
    text = (
        f"{_FIELD} is {shorten_value(own)!r}, which bypasses the scheduler: remove the field from the Pod;"
        " to ask for one node, use nodeSelector with kubernetes.io/hostname, or have the policy's owner set"
        " placement.allowNodeName"
    )
    return [Violation(Code.NODE_NAME_SET, _FIELD, _FIELD, text)]


DEFAULT_SCHEDULER = "default-scheduler"
_DEFAULTS = {"schedulerName": DEFAULT_SCHEDULER}


class ScalarField(Struct, frozen=True):
    """One field: the policy's value, the Pod's own, and whether the user wrote it."""

    name: str
    rule: OnConflict
    wanted: str | None
    own: str | None
    is_users: bool

    @property
    def is_due(self) -> bool:
        """Whether the Pod must end up with the policy's value, and does not have it."""
        return (
            self.wanted is not None and self.own != self.wanted and not (self.is_users and self.rule is OnConflict.KEEP)
        )

    @property
    def is_conflict(self) -> bool:
        return self.is_due and self.is_users and self.rule is OnConflict.DENY


FIELDS = {
    "schedulerName": "scheduler_name",
    "priorityClassName": "priority_class_name",
    "runtimeClassName": "runtime_class_name",
}
"""The scalar fields that a policy sets, and the attributes that hold them."""


def scalar_fields_of(pod: Pod, plan: PlacementPlan) -> list[ScalarField]:
    """Return the fields that the policy sets."""
    found = []
    for name, attribute in FIELDS.items():
        wanted, own = getattr(plan, attribute), getattr(pod.spec, attribute)
        if wanted is not None:
            is_users = find_users_value(pod, plan, name) is not None
            found.append(ScalarField(name, plan.find_rule(attribute), wanted, own, is_users))
    return found


def find_users_value(pod: Pod, plan: PlacementPlan, name: str) -> str | None:
    """Return the Pod's value of a field if the user chose it; None for the policy's, and what the API server fills in.

    The API server has already defaulted an empty schedulerName.
    """
    own: str | None = getattr(pod.spec, FIELDS[name])
    if not own or own == getattr(plan, FIELDS[name]):
        return None
    if name == "schedulerName":
        return None if own == DEFAULT_SCHEDULER else own
    return None if name == "priorityClassName" and _is_the_default(pod.metadata) else own


def may_stay(plan: PlacementPlan, name: str) -> bool:
    """Return whether a Pod may have its own value of a field."""
    return getattr(plan, FIELDS[name]) is None or plan.find_rule(FIELDS[name]) is OnConflict.KEEP


def build_operations(pod: Pod, plan: PlacementPlan) -> list[PatchOperation]:
    found: list[PatchOperation] = []
    for single in scalar_fields_of(pod, plan):
        if single.is_due and not single.is_conflict:
            found.append((add if single.own is None else replace)(single.wanted, "spec", single.name))
            found += remove_companions(pod, single.name)
    own, wanted = pod.spec.node_selector, plan.node_selector
    if own and plan.find_rule("node_selector") is not OnConflict.OVERRIDE:
        wanted = {key: value for key, value in wanted.items() if key not in own}
    return found + set_keys(("spec", "nodeSelector"), own, dict(wanted))


def find_replaced_scalar(pod: Pod, plan: PlacementPlan | None, name: str) -> str | None:
    """Return the user's own value of a field that the policy overrides; None if the user did not write it."""
    return find_users_value(pod, plan, name) if plan is not None and name in FIELDS else None


def remove_companions(pod: Pod, name: str) -> list[PatchOperation]:
    """Remove the values that a plugin filled in for the former name."""
    spec = pod.spec
    if name == "priorityClassName":
        own: dict[str, object] = {"priority": spec.priority, "preemptionPolicy": spec.preemption_policy}
    elif name == "runtimeClassName":
        own = {"overhead": spec.overhead}
    else:
        return []
    return [remove("spec", field) for field, value in own.items() if value is not None]


def find_violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    found = [
        build_difference(
            f"spec.{scalar.name}",
            scalar.own or _DEFAULTS.get(scalar.name),
            scalar.wanted or "",
            is_users=scalar.is_conflict,
        )
        for scalar in scalar_fields_of(pod, plan)
        if scalar.is_due
    ]
    if _has_no_priority(pod, plan):
        text = (
            "spec.priority is missing: priorityClassName was set after the API server last computed priorities;"
            " try again; if that does not help, another webhook changes this field, or a label by which the Pod comes"
            " to another service, and must be called before podgate"
        )
        found.append(Violation(Code.PLACEMENT_UNFULFILLED, "spec.priority", "spec.priority", text))
    if plan.node_selector:
        own, rule = pod.spec.node_selector or {}, plan.find_rule("node_selector")
        for key, wanted in plan.node_selector.items():
            value = own.get(key)
            if value != wanted and (value is None or rule is not OnConflict.KEEP):
                is_users = value is not None and rule is OnConflict.DENY
                found.append(build_difference(f"spec.nodeSelector[{key}]", value, wanted, is_users=is_users))
    return found


def reads_field_managers(pod: Pod, plan: PlacementPlan) -> bool:
    """Return whether the patch or the violations depend on more of the Pod's metadata than its labels."""
    wanted, spec = plan.priority_class_name, pod.spec
    if not spec.priority_class_name or (wanted is None and plan.allow.priority_class_names is None):
        return False
    return spec.priority_class_name != wanted or spec.priority is None


def _has_no_priority(pod: Pod, plan: PlacementPlan) -> bool:
    """Return whether the priority of the policy's class was never computed.

    The API server runs its plugins twice. No plugin sees what Podgate writes in the second round, after the first
    call was lost or another webhook changed the field. A Pod without uid or managedFields is not being stored.
    """
    spec, metadata = pod.spec, pod.metadata
    is_ours = plan.priority_class_name is not None and spec.priority_class_name == plan.priority_class_name
    return is_ours and spec.priority is None and bool(metadata.uid) and bool(_managers_of(metadata))


def build_difference(field: str, own: str | None, wanted: str, *, is_users: bool) -> Violation:
    """Return the violation: a conflict if the user wrote the value, else a lost rewrite. The remedies differ."""
    is_text = "is missing" if own is None else f"is {shorten_value(own)!r}"
    if is_users:
        remedy = f"the policy sets {wanted!r}; remove the field from the Pod or set it to {wanted!r}"
        return Violation(Code.PLACEMENT_CONFLICT, field, field, f"{field} {is_text}, {remedy}")
    return Violation(Code.PLACEMENT_UNFULFILLED, field, field, f"{field} {is_text}, expected {wanted!r}")


class _Fields(Struct, frozen=True):
    spec: dict[str, msgspec.Raw] = field(default={}, name="f:spec")


class _Manager(Struct, frozen=True):
    fields: _Fields = field(default=_Fields(), name="fieldsV1")


_managers = msgspec.json.Decoder(tuple[_Manager, ...] | None)


def _is_the_default(metadata: PodMetadata) -> bool:
    """Return whether the Priority plugin set the class: managedFields record what the user wrote before plugins ran.

    Without managedFields, as in a file, every value counts as the user's.
    """
    managers = _managers_of(metadata)
    return bool(managers) and not any("f:priorityClassName" in manager.fields.spec for manager in managers)


def reduce_managers(metadata: PodMetadata) -> msgspec.Raw:
    """Reduce managedFields to the part that placement reads: who wrote priorityClassName."""
    managers = _managers_of(metadata)
    if not managers:
        return msgspec.Raw(b"null")
    is_users = any("f:priorityClassName" in manager.fields.spec for manager in managers)
    return _USERS if is_users else _NOBODYS


_USERS = msgspec.Raw(b'[{"fieldsV1":{"f:spec":{"f:priorityClassName":{}}}}]')
_NOBODYS = msgspec.Raw(b'[{"fieldsV1":{"f:spec":{}}}]')


def _managers_of(metadata: PodMetadata) -> tuple[_Manager, ...]:
    try:
        return _managers.decode(metadata.managed_fields) or ()
    except UNREADABLE_JSON:
        return ()
