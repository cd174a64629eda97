"""QoS class of a Pod, by Kubernetes' own rule. It decides the eviction order of a node under pressure.

Source: k8s.io/kubernetes/pkg/apis/core/v1/helper/qos (ComputePodQOS), 1.36. It sums over the containers; as no
request is above its limit, checking each container gives the same class.
"""

from collections.abc import Iterable, Mapping

from webhook.core.container_resources.plan import DECIDE_QOS
from webhook.core.kubernetes.pod import Pod, Resources
from webhook.core.kubernetes.pod_requests import compute_containers_total, read_amount
from webhook.core.policy_fields import QosClass

Amounts = Mapping[str, tuple[int | None, int | None]]
"""Request and limit of cpu and of memory, in billionths; an absent request is the limit."""


def compute_class(amounts: Amounts) -> QosClass:
    """Return the class by the amounts of one container, or of a whole Pod."""
    asked = [amounts[name] for name in DECIDE_QOS]
    if not any(request or limit for request, limit in asked):
        return QosClass.BEST_EFFORT
    if all(limit and request in {limit, None} for request, limit in asked):
        return QosClass.GUARANTEED
    return QosClass.BURSTABLE


def find_common_class(classes: Iterable[QosClass]) -> QosClass:
    """Return a Pod's class by its containers': the common one, else Burstable."""
    found = set(classes)
    return QosClass.BURSTABLE if len(found) > 1 else next(iter(found), QosClass.BEST_EFFORT)


def find_qos_class(pod: Pod) -> QosClass:
    """Return the class of a Pod. ValueError: an unreadable quantity."""
    if pod.spec.resources is not None:
        return compute_class({name: _read_pod_amounts(pod, pod.spec.resources, name) for name in DECIDE_QOS})
    containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    return find_common_class(
        compute_class({name: _read_amounts(container.resources, name) for name in DECIDE_QOS})
        for container in containers
    )


def _read_amounts(resources: Resources | None, name: str) -> tuple[int | None, int | None]:
    return (
        (None, None)
        if resources is None
        else (read_amount(resources.requests, name), read_amount(resources.limits, name))
    )


def _read_pod_amounts(pod: Pod, own: Resources, name: str) -> tuple[int | None, int | None]:
    """Return the Pod-level request and limit; with any Pod-level limit, the API server sums absent requests."""
    request, limit = _read_amounts(own, name)
    if request is None and own.limits and _is_in_a_container(pod, name):
        request = compute_containers_total(pod, "requests", name)
    return request, limit


def _is_in_a_container(pod: Pod, name: str) -> bool:
    """Return whether a container has a request, even of 0, or a limit, which then also is the request."""
    containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    return any(_read_amounts(container.resources, name) != (None, None) for container in containers)
