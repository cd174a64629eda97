"""Causes before a Pod's containers start, by the kubelet's newest Event: volumes, the sandbox, missing objects."""

import re
from collections.abc import Sequence

from webhook.core.diagnosis.objects import ReportedEvent, ReportedPod
from webhook.core.diagnosis.report import Cause

_OBJECT = re.compile(r'(?P<kind>secret|configmap)s? "(?P<name>[^"]+)" not found', re.IGNORECASE)
_KEY = re.compile(r"couldn't find key (?P<key>\S+) in (?P<kind>Secret|ConfigMap) (?P<name>\S+)")
_KEYS = re.compile(r"references non-existent (?P<kind>secret|config) key: (?P<key>\S+)")
_CLAIM = re.compile(r'persistentvolumeclaim "(?P<name>[^"]+)" not found')
_KINDS = {"secret": "Secret", "configmap": "ConfigMap", "config": "ConfigMap"}


def suggest_creation(message: str, namespace: str) -> str:
    """Return what to create, "" if nothing is missing."""
    if found := _OBJECT.search(message):
        name = found["name"].rpartition("/")[2]
        return f"create {_KINDS[found['kind'].lower()]} {name} in namespace {namespace}"
    if found := _KEY.search(message):
        return f"add key {found['key']} to {found['kind']} {found['name']}"
    if found := _KEYS.search(message):
        return f"add key {found['key']} to the {_KINDS[found['kind']]} of the volume"
    if found := _CLAIM.search(message):
        return f"create PersistentVolumeClaim {found['name']} in namespace {namespace}"
    return ""


_VOLUMES = frozenset({"FailedMount", "FailedMapVolume", "FailedAttachVolume"})
_SANDBOX = frozenset({"FailedCreatePodSandBox", "NetworkNotReady"})
_PROGRESS = frozenset({"Pulling", "Pulled", "Created", "Started", "SuccessfulAttachVolume"})
"""Events after which an earlier failure is over."""


def explain_stall(pod: ReportedPod, events: Sequence[ReportedEvent]) -> Cause | None:
    """Return why no container has started, if the newest Event of the kubelet tells it."""
    told = [event for event in events if (event.reason or "") in _VOLUMES | _SANDBOX | _PROGRESS]
    newest = max(told, key=lambda event: (event.at, event.reason in _PROGRESS), default=None)
    if newest is None or newest.reason in _PROGRESS:
        return None
    message = " ".join((newest.message or "").split())
    remedy = _suggest_volume(pod, message) if newest.reason in _VOLUMES else _suggest_sandbox(pod, message)
    return Cause(f"{newest.reason}: {message}", remedy)


def _suggest_volume(pod: ReportedPod, message: str) -> str:
    created = suggest_creation(message, pod.metadata.namespace)
    if created:
        return created
    if "Multi-Attach" in message:
        return "end the Pod that uses the volume on another node, or wait until that node has detached it"
    return f"see that the volume exists and that its driver runs on node {pod.spec.node_name}"


def _suggest_sandbox(pod: ReportedPod, message: str) -> str:
    if "no runtime for" in message or "RuntimeHandler" in message:
        return f"install that runtime handler on node {pod.spec.node_name}, or correct spec.runtimeClassName"
    return f"repair the network plugin or the container runtime of node {pod.spec.node_name}"
