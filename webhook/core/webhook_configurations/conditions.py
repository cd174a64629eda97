"""Match conditions: CEL expressions that must all hold for the API server to call the webhook.

An error in an expression is handled by failurePolicy, so optional fields are read with `has` and `.?`.
Source: k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions, 1.36.
"""

from collections.abc import Collection, Iterable, Iterator

from webhook.core.admission.exemptions import DAEMON_SET_CONTROLLER, PODGATE_USERS
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.kubernetes.pod import MIRROR_ANNOTATION
from webhook.core.placement import SERVICE_LABEL
from webhook.core.policy.model import Exemptions, Service
from webhook.core.webhook_configurations.cel import is_one_of, listed, namespace_fits, pieces, quoted
from webhook.core.webhook_configurations.name_sets import EVERY, Patterns
from webhook.core.webhook_configurations.namespace_regions import NamespaceRegion

Condition = dict[str, str]

JUDGED_WHILE_GATED = (
    *("nodeSelector", "affinity", "tolerations", "schedulerName"),
    *("priorityClassName", "runtimeClassName", "topologySpreadConstraints"),
)
"""Fields of a Pod's spec that `validation.guard` compares, only while the Pod is gated."""
_JUDGED_PATHS = tuple(f"spec.?{field}" for field in JUDGED_WHILE_GATED)
_MOST_KEYS = 100
"""Labels or annotations compared one by one: an expression has a greatest length. With more, all are compared."""
_USER = "request.userInfo.username"
_RUNTIME_CLASS = "object.spec.runtimeClassName"


def of_region(region: NamespaceRegion) -> Iterator[Condition]:
    """Yield the conditions on a namespace's name; its labels are matched by namespaceSelector."""
    if EVERY not in region.names.inside:
        yield _condition("in-service-namespaces", namespace_fits(region.names.inside))
    yield from _outside("not-in-other-entries", region.names.outside)
    yield from _outside("not-in-exempt-namespaces", region.exempt)


def of_exemptions(exemptions: Exemptions) -> Iterator[Condition]:
    """Yield the conditions of `exemptions.exemption` besides namespaces: exempt Pods need no running webhook."""
    for number, users in enumerate(pieces(exemptions.usernames), 1):
        yield _condition(_numbered("not-exempt-users", number), f"!({is_one_of(_USER, users)})")
    for number, classes in enumerate(pieces(filter(None, exemptions.runtime_classes)), 1):
        exempt = f"has({_RUNTIME_CLASS}) && {is_one_of(_RUNTIME_CLASS, classes)}"
        yield _condition(_numbered("not-exempt-runtime-classes", number), f"!({exempt})")
    if exemptions.daemon_sets:
        yield _condition("not-daemonset-pods", f"{_USER} != '{DAEMON_SET_CONTROLLER}'")
    mirror = (
        f"{_USER}.startsWith('system:node:') && '{MIRROR_ANNOTATION}' in object.metadata.?annotations.orValue({{}})"
    )
    yield _condition("not-mirror-pods", f"!({mirror})")


def of_new_pods(name: str, expression: str) -> Iterator[Condition]:
    """Yield the condition on the Pods to call for; none if the webhook is called for all of them."""
    if expression:
        yield _condition(name, expression)


def of_updates(services: Iterable[Service]) -> Iterator[Condition]:
    """Yield the condition that skips an UPDATE that is always admitted: finalizers must work without the webhook.

    It does not ask whether the Pod is being deleted: the Pod counts until it is gone.
    """
    plans = [service.placement_plan for service in services if service.placement_plan is not None]
    restricts = any(plan.allow.tolerations is not None for plan in plans)
    # Podgate releases Pods while no server runs, too: its own removal of the gate differs in nothing else.
    gated = "oldObject.spec.?schedulingGates.orValue([]).size() > 0"
    # Labels choose the Pods that a spread with matchLabelKeys counts.
    judged = " ||\n  ".join(_differs(path) for path in ("metadata.?labels", *_JUDGED_PATHS))
    asked = (
        "request.operation == 'CREATE'",
        *_metadata("labels", SERVICE_LABEL, {key for plan in plans for key in plan.labels}),
        *_metadata("annotations", HASH_ANNOTATION, {key for plan in plans for key in plan.annotations}),
        "request.?subResource.orValue('') == 'resize'",
        *([_differs("spec.?tolerations")] if restricts else []),  # only these may grow in a Pod that is not gated
        f"{_differs('spec.?schedulingGates')} && !({is_one_of(_USER, PODGATE_USERS)})",
        f"{gated} && (\n  {judged}\n)",
    )
    yield _condition("judged-fields-differ", " ||\n".join(asked))


def _metadata(kind: str, own: str, keys: Collection[str]) -> Iterator[str]:
    """Yield the expressions of changed labels or annotations that are checked: Podgate's own, and the policy's."""
    if len(keys) > _MOST_KEYS:
        yield _differs(f"metadata.?{kind}")
        return
    yield _differs(f"metadata.?{kind}[?{quoted(own)}]")
    if keys:
        yield f"{listed(keys)}.exists(key, {_differs(f'metadata.?{kind}[?key]')})"


def of_workloads() -> Iterator[Condition]:
    """Yield the conditions that leave workloads written by a user, with a new or changed template.

    A controller discards the warnings about objects that it creates, such as a Deployment's ReplicaSet.
    """
    made = "object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false))"
    yield _condition("not-made-by-a-controller", f"!{made}")
    yield _condition("not-being-deleted", "request.operation == 'CREATE' || !has(object.metadata.deletionTimestamp)")
    # A CronJob's template is in the template of its Jobs.
    asked = ("request.operation == 'CREATE'", _differs("spec.?template"), _differs("spec.?jobTemplate.?spec.?template"))
    yield _condition("template-differs", " ||\n".join(asked))


def _differs(path: str) -> str:
    return f"object.{path} != oldObject.{path}"


def _outside(name: str, patterns: Patterns) -> Iterator[Condition]:
    for number, piece in enumerate(pieces(patterns), 1):
        yield _condition(_numbered(name, number), f"!({namespace_fits(frozenset(piece))})")


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def _condition(name: str, expression: str) -> Condition:
    return {"name": name, "expression": expression}
