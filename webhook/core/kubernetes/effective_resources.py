"""Effective resources: the maximum of what a Pod asks for, what its node has set aside for it, and what it runs with.

They differ while a resize is not done.

Source: k8s.io/component-helpers/resource (PodRequests, PodLimits with UseStatusResources), Kubernetes 1.36. The
scheduler and ResourceQuota count so; ResourceQuota leaves out the status of Pod-level resources.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from webhook.core.kubernetes.pod import Amounts, Container, ContainerStatus, Pod, PodStatus, Resources
from webhook.core.kubernetes.pod_requests import is_sidecar, read_amount

_Reported = Mapping[str, ContainerStatus]
_NOTHING = Resources()


def apply_status(pod: Pod) -> Pod | None:
    """Return a Pod as if it asked for what its node keeps; None if its status shows what it asks for.

    ValueError: an invalid quantity.
    """
    spec, status = pod.spec, pod.status
    if not status.container_statuses and not status.init_container_statuses and status.resources is None:
        return None  # it has not started
    statuses = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    reported = {found.name: found for found in statuses}
    if not _is_resized(pod, reported):
        return None
    counts_asked = not _is_infeasible(status)
    kept = replace(
        spec,
        containers=tuple(_keep(container, reported, counts_asked=counts_asked) for container in spec.containers or ()),
        init_containers=tuple(
            _keep(container, reported, counts_asked=counts_asked) if is_sidecar(container) else container
            for container in spec.init_containers or ()
        ),
        resources=_keep_of_pod(spec.resources, status, counts_asked=counts_asked),
    )
    return replace(pod, spec=kept)


def _is_resized(pod: Pod, reported: _Reported) -> bool:
    """Return whether any resources of the status are written in another way than in the spec: of few Pods they are."""
    spec, status = pod.spec, pod.status
    for container in spec.containers or ():
        if _is_container_resized(container, reported):
            return True
    for container in spec.init_containers or ():
        if is_sidecar(container) and _is_container_resized(container, reported):
            return True
    return spec.resources is not None and _differs(spec.resources, status.resources, status.allocated_resources)


def _is_container_resized(container: Container, reported: _Reported) -> bool:
    found = reported.get(container.name)
    return found is not None and _differs(container.resources or _NOTHING, found.resources, found.allocated_resources)


def _differs(asked: Resources, actual: Resources | None, allocated: Amounts | None) -> bool:
    return actual is not None and (actual != asked or bool(allocated and allocated != asked.requests))


def _is_infeasible(status: PodStatus) -> bool:
    """Return whether the node can never do the resize: what is asked for does not count then."""
    for condition in status.conditions or ():
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _keep(container: Container, reported: _Reported, *, counts_asked: bool) -> Container:
    """Return a container that asks for what is kept for it."""
    found = reported.get(container.name)
    if found is None or found.resources is None:
        return container
    asked = (container.resources or _NOTHING) if counts_asked else _NOTHING
    # An absent request is the limit, as the API server defaults it.
    requested = {**(asked.limits or {}), **(asked.requests or {})}
    requests = _take_larger(requested, found.resources.requests, found.allocated_resources)
    limits = _take_larger(asked.limits, found.resources.limits)
    return replace(container, resources=Resources({**dict.fromkeys(limits, "0"), **requests}, limits))


def _keep_of_pod(own: Resources | None, status: PodStatus, *, counts_asked: bool) -> Resources | None:
    """Return those Pod-level resources that a Pod asks for as they are kept."""
    if own is None or status.resources is None:
        return own
    asked = own if counts_asked else _NOTHING
    requests = _take_larger(asked.requests, status.resources.requests, status.allocated_resources)
    limits = _take_larger(asked.limits, status.resources.limits)
    return Resources(
        {name: requests.get(name, "0") for name in own.requests or ()},
        {name: limits.get(name, "0") for name in own.limits or ()},
    )


def _take_larger(*states: Amounts | None) -> Amounts:
    """Return the largest amount of each resource."""
    largest: Amounts = {}
    for state in states:
        for name, amount in (state or {}).items():
            if name not in largest or (read_amount(state, name) or 0) > (read_amount(largest, name) or 0):
                largest[name] = amount
    return largest
