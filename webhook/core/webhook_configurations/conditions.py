"""Match conditions: CEL expressions that must all hold for the API server to call the webhook.

An error in an expression is handled by failurePolicy, so optional fields are read with `has` and `.?`.
Source: k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions, 1.36.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from webhook.core.admission.exemptions import DAEMON_SET_CONTROLLER, PODGATE_USERS
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.groups.membership import GROUP_ANNOTATION
from webhook.core.kubernetes.controllers import WORKLOAD_KINDS
from webhook.core.kubernetes.pod import MIRROR_ANNOTATION
from webhook.core.placement import SERVICE_LABEL, VARIANT_LABEL
from webhook.core.policy.model import Exemptions, Service
from webhook.core.shares import SLOT_ANNOTATIONS
from webhook.core.webhook_configurations.cel import (
    format_list,
    format_membership,
    format_namespace_match,
    quote,
    split_texts,
)
from webhook.core.webhook_configurations.name_sets import EVERY, Patterns
from webhook.core.webhook_configurations.namespace_regions import NamespaceRegion

Condition = dict[str, str]

JUDGED_WHILE_GATED = (
    *("nodeSelector", "affinity", "tolerations", "schedulerName"),
    *("priorityClassName", "runtimeClassName", "topologySpreadConstraints"),
)
"""Fields of a Pod's spec that `validation.check_update` compares, only while the Pod is gated."""
_JUDGED_PATHS = tuple(f"spec.?{field}" for field in JUDGED_WHILE_GATED)
_CHANGEABLE = {
    ("Pod", "labels"): "metadata.?labels",
    ("Pod", "annotations"): "metadata.?annotations",
    ("Pod", "tolerations"): "spec.?tolerations",
    ("Pod", "activeDeadlineSeconds"): "spec.?activeDeadlineSeconds",
    ("Pod", "terminationGracePeriodSeconds"): "spec.?terminationGracePeriodSeconds",
}
"""Fields that rules may read, and that an UPDATE of a Pod that is not gated may change; images are the others."""
_IMAGES = tuple(f"spec.?{kind}.orValue([]).map(c, c.?image.orValue(''))" for kind in ("containers", "initContainers"))
_KEYS_MAX = 100
"""Labels or annotations compared one by one: an expression has a greatest length. With more, all are compared."""
_USER = "request.userInfo.username"
_IS_CUSTOM = f"!({format_membership('request.resource.group', sorted({kind.group for kind in WORKLOAD_KINDS}))})"
_RUNTIME_CLASS = "object.spec.runtimeClassName"


def render_region(region: NamespaceRegion) -> Iterator[Condition]:
    """Yield the conditions on a namespace's name; its labels are matched by namespaceSelector."""
    if EVERY not in region.names.inside:
        yield _make_condition("in-service-namespaces", format_namespace_match(region.names.inside))
    yield from _render_outside("not-in-other-entries", region.names.outside)
    yield from _render_outside("not-in-exempt-namespaces", region.exempt)


def render_exemptions(exemptions: Exemptions) -> Iterator[Condition]:
    """Yield the conditions of `exemptions.find_exemption` besides namespaces: exempt Pods need no running webhook."""
    for number, users in enumerate(split_texts(exemptions.usernames), 1):
        yield _make_condition(_number_name("not-exempt-users", number), f"!({format_membership(_USER, users)})")
    for number, classes in enumerate(split_texts(filter(None, exemptions.runtime_classes)), 1):
        exempt = f"has({_RUNTIME_CLASS}) && {format_membership(_RUNTIME_CLASS, classes)}"
        yield _make_condition(_number_name("not-exempt-runtime-classes", number), f"!({exempt})")
    if exemptions.daemon_sets:
        yield _make_condition("not-daemonset-pods", f"{_USER} != '{DAEMON_SET_CONTROLLER}'")
    mirror = (
        f"{_USER}.startsWith('system:node:') && '{MIRROR_ANNOTATION}' in object.metadata.?annotations.orValue({{}})"
    )
    yield _make_condition("not-mirror-pods", f"!({mirror})")


def render_new_pods(name: str, expression: str) -> Iterator[Condition]:
    """Yield the condition on the Pods to call for; none if the webhook is called for all of them."""
    if expression:
        yield _make_condition(name, expression)


def render_updates(services: Sequence[Service]) -> Iterator[Condition]:
    """Yield the condition that skips an UPDATE that is always admitted: finalizers must work without the webhook.

    It does not ask whether the Pod is being deleted: the Pod counts until it is gone.
    """
    plans = [service.placement_plan for service in services if service.placement_plan is not None]
    is_divided = any(service.placement is not None and service.placement.shares is not None for service in services)
    labels = {key for plan in plans for key in plan.labels}.union((VARIANT_LABEL,) if is_divided else ())
    annotations = {key for plan in plans for key in plan.annotations}
    annotations.update(SLOT_ANNOTATIONS if is_divided else ())
    restricts = any(plan.allow.tolerations is not None for plan in plans)
    # Podgate releases Pods while no server runs, too: its own removal of the gate differs in nothing else.
    gated = "oldObject.spec.?schedulingGates.orValue([]).size() > 0"
    # Labels choose the Pods that a spread with matchLabelKeys counts.
    group = f"metadata.?annotations[?{quote(GROUP_ANNOTATION)}]"
    judged = " ||\n  ".join(_compare_path(path) for path in ("metadata.?labels", group, *_JUDGED_PATHS))
    asked = (
        "request.operation == 'CREATE'",
        *_compare_metadata("labels", SERVICE_LABEL, labels),
        *_compare_metadata("annotations", HASH_ANNOTATION, annotations),
        "request.?subResource.orValue('') == 'resize'",
        *([_compare_path("spec.?tolerations")] if restricts else []),  # only these may grow in a Pod that is not gated
        *_compare_ruled(services, restricts=restricts),
        f"{_compare_path('spec.?schedulingGates')} && !({format_membership(_USER, PODGATE_USERS)})",
        f"{gated} && (\n  {judged}\n)",
    )
    yield _make_condition("judged-fields-differ", " ||\n".join(asked))


def _compare_ruled(services: Sequence[Service], *, restricts: bool) -> Iterator[str]:
    """Yield the expressions of changes that rules judge: those fields of a Pod that rules read and users may change."""
    reads = frozenset(field for service in services for rule in service.rule_plan.rules for field in rule.reads)
    for field, path in _CHANGEABLE.items():
        if field in reads and not (restricts and path == "spec.?tolerations"):
            yield _compare_path(path)
    if ("Container", "image") in reads:
        yield from map(_compare_path, _IMAGES)


def _compare_metadata(kind: str, own: str, keys: Collection[str]) -> Iterator[str]:
    """Yield the expressions of changed labels or annotations that are checked: Podgate's own, and the policy's."""
    if len(keys) > _KEYS_MAX:
        yield _compare_path(f"metadata.?{kind}")
        return
    yield _compare_path(f"metadata.?{kind}[?{quote(own)}]")
    if keys:
        yield f"{format_list(keys)}.exists(key, {_compare_path(f'metadata.?{kind}[?key]')})"


def render_workloads(custom_fields: Iterable[str]) -> Iterator[Condition]:
    """Yield the conditions that leave workloads written by a user, with a new or changed template.

    `custom_fields`: the fields that hold the templates of kinds that are not Kubernetes' own, such as `spec`.

    A controller discards the warnings about objects that it creates, such as a Deployment's ReplicaSet.
    """
    made = "object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false))"
    yield _make_condition("not-made-by-a-controller", f"!{made}")
    yield _make_condition(
        "not-being-deleted", "request.operation == 'CREATE' || !has(object.metadata.deletionTimestamp)"
    )
    # A CronJob's template is in the template of its Jobs.
    asked = (
        "request.operation == 'CREATE'",
        _compare_path("spec.?template"),
        _compare_path("spec.?jobTemplate.?spec.?template"),
        *(f"{_IS_CUSTOM} && {_compare_path(f'?{field}')}" for field in custom_fields),
    )
    yield _make_condition("template-differs", " ||\n".join(asked))


def _compare_path(path: str) -> str:
    return f"object.{path} != oldObject.{path}"


def _render_outside(name: str, patterns: Patterns) -> Iterator[Condition]:
    for number, piece in enumerate(split_texts(patterns), 1):
        yield _make_condition(_number_name(name, number), f"!({format_namespace_match(frozenset(piece))})")


def _number_name(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def _make_condition(name: str, expression: str) -> Condition:
    return {"name": name, "expression": expression}
