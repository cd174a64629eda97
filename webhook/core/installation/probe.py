"""Probes: Pods and a policy that prove by the response that the API server calls Podgate, or the extender."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from webhook.core.admission.exemptions import is_exempt_namespace
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.document import configmap
from webhook.core.document.configmap import NAMESPACE
from webhook.core.installation.objects import Json, ObjectReference
from webhook.core.kubernetes.label_constraints import Constraint, build_constraints
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.types import LabelSelector
from webhook.core.placement import SERVICE_LABEL
from webhook.core.policy.matching import Matcher
from webhook.core.policy.model import Policy
from webhook.core.webhook_configurations import ClientConfig

EXTENDER_PROBE_LABEL = "podgate.io/extender-probe"
EXTENDER_PROBE_REASON = "refused by the extender, which was to be shown"


def is_extender_probe(pod: Pod) -> bool:
    """Return whether a Pod is a probe: only in Podgate's own namespace, so that no tenant can keep Pods Pending."""
    return pod.metadata.namespace == NAMESPACE and EXTENDER_PROBE_LABEL in (pod.metadata.labels or {})


PROBE = "podgate-probe"
"""Name of the Pod that only dry runs create, and of the webhook configurations that call for no other Pod."""
_DENIED = re.compile(r'admission webhook "[-a-z0-9]+\.podgate\.io" denied the request')
_NOT_CALLED = re.compile(r'failed calling webhook "([-a-z0-9]+\.podgate\.io)": (.*)', re.DOTALL)
_REGISTRATION = "admissionregistration.k8s.io/v1"
_SOME_VALUE = "podgate-probe"

BROKEN_POLICY = [
    {"op": "add", "path": f"/data/{configmap.KEY}", "value": "kind: Policy\nservices: broken on purpose\n"}
]
"""JSON Patch of the policy's ConfigMap, for a dry run, which only Podgate denies."""


@dataclass(frozen=True, slots=True)
class PodProbe:
    """A Pod in an existing namespace that a service owns, so that Podgate writes the service's name into it."""

    service: str
    pod: Json

    @property
    def reference(self) -> ObjectReference:
        return ObjectReference.from_document(self.pod)

    def is_rewritten(self, answer: Json) -> bool:
        """Return whether the Pod in an answer has the label and hash that Podgate writes into Pods of the service."""
        metadata = answer.get("metadata") or {}
        is_named = (metadata.get("labels") or {}).get(SERVICE_LABEL) == self.service
        return is_named and HASH_ANNOTATION in (metadata.get("annotations") or {})


def find_pod_probe(policy: Policy, namespaces: Mapping[str, Mapping[str, str]]) -> PodProbe | None:
    """Return a probe in one of the namespaces, given with their labels; None if no service owns Pods there."""
    return next(list_pod_probes(policy, namespaces), None)


def list_pod_probes(policy: Policy, namespaces: Mapping[str, Mapping[str, str]]) -> Iterator[PodProbe]:
    """Yield one probe of each service that owns Pods in one of the namespaces."""
    matcher, done = Matcher(policy), set[str]()
    for namespace, labels in namespaces.items():
        if is_exempt_namespace(namespace, policy):
            continue
        for service in matcher.list_candidates(namespace):
            wanted = _choose_labels(service.match.pod_selector)
            is_owner = wanted is not None and matcher.find_owner(namespace, labels, wanted) is service
            if wanted is not None and is_owner and service.name not in done and not service.modes.is_all_disabled():
                done.add(service.name)
                yield PodProbe(service.name, build_probe_pod(namespace, wanted))


def build_probe_pod(namespace: str, labels: Mapping[str, str]) -> Json:
    """Return a Pod that the Pod Security profile `restricted` admits."""
    container = {
        "name": "probe",
        "image": "podgate.invalid/probe",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": PROBE, "namespace": namespace, "labels": dict(labels)},
        "spec": {"containers": [container], "securityContext": security},
    }


def is_denied_by_podgate(message: str) -> bool:
    """Return whether an error of the API server is Podgate's own denial, so that it has been called."""
    return _DENIED.search(message) is not None


def find_failed_call(message: str) -> str:
    """Return why a call failed, in the API server's words; "" for another error."""
    found = _NOT_CALLED.search(message)
    return found[2] if found else ""


def build_closed_webhooks(client: ClientConfig) -> tuple[Json, Json]:
    """Return webhook configurations that fail closed, for the one Pod that only a dry run creates.

    Webhooks that fail open hide why a call fails; with these the API server reports it.
    """
    only_here = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [configmap.NAMESPACE]}

    def build_configuration(kind: str, route: str) -> Json:
        webhook = {
            "name": f"{route}-probe.podgate.io",
            "admissionReviewVersions": ["v1"],
            "clientConfig": client.render(route),
            "failurePolicy": "Fail",
            "matchConditions": [{"name": "probe", "expression": f"object.metadata.name == '{PROBE}'"}],
            "namespaceSelector": {"matchExpressions": [only_here]},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            "sideEffects": "NoneOnDryRun",
            "timeoutSeconds": 5,
        }
        metadata = {"name": PROBE, "labels": {"app.kubernetes.io/name": "podgate"}}
        return {"apiVersion": _REGISTRATION, "kind": kind, "metadata": metadata, "webhooks": [webhook]}

    return (
        build_configuration("MutatingWebhookConfiguration", "mutate"),
        build_configuration("ValidatingWebhookConfiguration", "validate"),
    )


def _choose_labels(selector: LabelSelector | None) -> dict[str, str] | None:
    """Return labels that a selector may select, None if there are none."""
    found: dict[str, str] = {}
    for key, constraint in build_constraints(selector).items():
        if constraint.is_impossible:
            return None
        if constraint.present:
            found[key] = _choose_value(constraint)
    return found


def _choose_value(constraint: Constraint) -> str:
    if constraint.allowed:
        return min(constraint.allowed)
    return _SOME_VALUE if _SOME_VALUE not in constraint.denied else f"{_SOME_VALUE}-2"
