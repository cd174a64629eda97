"""Causes before a Pod's containers start: volumes, the sandbox and its network, by the kubelet's newest Event."""

from collections.abc import Sequence

from webhook.core.diagnosis.causes.missing import create_it
from webhook.core.diagnosis.objects import ReportedEvent, ReportedPod
from webhook.core.diagnosis.report import Cause

_VOLUMES = frozenset({"FailedMount", "FailedMapVolume", "FailedAttachVolume"})
_SANDBOX = frozenset({"FailedCreatePodSandBox", "NetworkNotReady"})
_PROGRESS = frozenset({"Pulling", "Pulled", "Created", "Started", "SuccessfulAttachVolume"})
"""After these the failure before them is over."""


def stall_of(pod: ReportedPod, events: Sequence[ReportedEvent]) -> Cause | None:
    """Return why no container has started, if the newest Event of the kubelet tells it."""
    told = [one for one in events if (one.reason or "") in _VOLUMES | _SANDBOX | _PROGRESS]
    newest = max(told, key=lambda one: (one.at, one.reason in _PROGRESS), default=None)
    if newest is None or newest.reason in _PROGRESS:
        return None
    message = " ".join((newest.message or "").split())
    remedy = _volume(pod, message) if newest.reason in _VOLUMES else _sandbox(pod, message)
    return Cause(f"{newest.reason}: {message}", remedy)


def _volume(pod: ReportedPod, message: str) -> str:
    created = create_it(message, pod.metadata.namespace)
    if created:
        return created
    if "Multi-Attach" in message:
        return "end the Pod that uses the volume on another node, or wait until that node has detached it"
    return f"see that the volume exists and that its driver runs on node {pod.spec.node_name}"


def _sandbox(pod: ReportedPod, message: str) -> str:
    if "no runtime for" in message or "RuntimeHandler" in message:
        return f"install that runtime handler on node {pod.spec.node_name}, or correct spec.runtimeClassName"
    return f"repair the network plugin or the container runtime of node {pod.spec.node_name}"
