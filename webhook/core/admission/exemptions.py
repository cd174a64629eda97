"""Exemptions: Pods that no policy applies to, with the reason."""

from functools import lru_cache

from webhook.core.admission.mutation import has_queue_gate
from webhook.core.admission.review import Request
from webhook.core.kubernetes.name_patterns import matches_any
from webhook.core.kubernetes.pod import MIRROR_ANNOTATION, Pod
from webhook.core.policy.model import BUILT_IN_EXEMPT_NAMESPACES, Policy

EXEMPTIONS = ("namespace", "username", "runtimeClass", "daemonSet", "mirror")
"""The reasons for an exemption."""
PODGATE_USERS = frozenset(f"system:serviceaccount:podgate-system:{name}" for name in ("podgate", "podgate-controller"))
"""Users of Podgate's own processes in a cluster: the controller, and the server, which is both without Redis."""
DAEMON_SET_CONTROLLER = "system:serviceaccount:kube-system:daemon-set-controller"


def is_release(request: Request) -> bool:
    """Return whether an UPDATE removes the gate of a waiting Pod."""
    if request.operation != "UPDATE" or request.sub_resource or request.pod is None or request.old_pod is None:
        return False
    return has_queue_gate(request.old_pod) and not has_queue_gate(request.pod)


def is_exempt_namespace(namespace: str, policy: Policy) -> bool:
    return _is_exempt(namespace, policy.exemptions.namespaces)


@lru_cache(maxsize=4096)  # the same few namespaces are checked in every review
def _is_exempt(namespace: str, patterns: tuple[str, ...]) -> bool:
    return namespace in BUILT_IN_EXEMPT_NAMESPACES or matches_any(patterns, namespace)


def is_exempt_runtime_class(pod: Pod, policy: Policy) -> bool:
    return bool(pod.spec.runtime_class_name) and pod.spec.runtime_class_name in policy.exemptions.runtime_classes


def find_exemption(request: Request, pod: Pod, policy: Policy) -> str:
    """Return why a Pod is exempt, "" if it is not. Of the fields that tenants write, only runtimeClassName counts."""
    exempt, user = policy.exemptions, request.user
    if _is_exempt(request.namespace, exempt.namespaces):
        return "namespace"
    if user in exempt.usernames:
        return "username"
    if pod.spec.runtime_class_name and is_exempt_runtime_class(pod, policy):
        return "runtimeClass"
    if user == DAEMON_SET_CONTROLLER and exempt.daemon_sets:
        return "daemonSet"
    # A tenant can write the annotation too: only a kubelet creates mirror Pods.
    if user.startswith("system:node:") and MIRROR_ANNOTATION in pod.annotations:
        return "mirror"
    return ""
