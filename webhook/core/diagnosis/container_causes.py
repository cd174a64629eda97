"""Causes in containers: exit, memory, image, configuration, and probes, each with its remedy."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from webhook.core.diagnosis.kubelet_causes import suggest_creation
from webhook.core.diagnosis.objects import ReportedContainer, ReportedEvent, ReportedPod, TerminatedReport
from webhook.core.diagnosis.report import Cause, ContainerReport

_OUT_OF_MEMORY = "OOMKilled"
_PROBE = re.compile(r"(?P<kind>Readiness|Liveness|Startup) probe (?:failed|errored)")
_KILLING = ("Liveness", "Startup")
_PULL_FAILED = "Failed to pull image"
_IMAGE_REASONS = frozenset(
    {
        *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"),
        *("ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"),
    }
)
_IMAGE_REMEDIES = (
    (r"invalid reference format|couldn't parse image", "correct the image's name"),
    (r"pull policy of Never", "load the image onto the node, or let imagePullPolicy be IfNotPresent"),
    (
        r"unauthorized|authoriz|authentic|denied|forbidden|\b40[13]\b",
        "see that the image exists, and that imagePullSecrets name a Secret with rights to it",
    ),
    (r"not found|manifest unknown", "correct the image's name or tag, or push that image"),
    (r"no such host|timeout|refused|unreachable|EOF|\b50[0-9]\b", "see that the node reaches the image's registry"),
)
_IMAGE_REMEDY = (
    "see that the image's name and tag exist, that imagePullSecrets fit, and that the node reaches the registry"
)
_CONFIGURATION = "CreateContainerConfigError"
_NOT_STARTED = frozenset({"CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun"})


def explain_container_failure(
    pod: ReportedPod, container: ReportedContainer, shown: ContainerReport, events: Sequence[ReportedEvent]
) -> tuple[ContainerReport, str]:
    """Return what a failed container shows, with its true cause, and the remedy."""
    ended = _find_last_end(container)
    if shown.state in _IMAGE_REASONS:
        return _explain_image(shown, events)
    if shown.state == _CONFIGURATION:
        return shown, _suggest_configuration(pod, shown)
    if ended is not None and ended.reason == _OUT_OF_MEMORY:
        return _explain_memory(pod, shown)
    if shown.state in _NOT_STARTED or (ended is not None and ended.reason in _NOT_STARTED):
        message = shown.message if shown.state in _NOT_STARTED or ended is None else ended.message or shown.message
        return replace(shown, message=message), f"correct command, args or mounts of container {container.name}"
    probe = None if ended is None else _find_killing_probe(pod, container, ended, events)
    if probe is not None:
        return replace(shown, message=f"killed: {probe.text}"), probe.remedy
    if ended is not None and ended.message and shown.message.startswith("back-off"):
        shown = replace(shown, message=" ".join(ended.message.split()))
    return shown, _suggest_logs(pod, container)


def find_probe(pod: ReportedPod, container: ReportedContainer, events: Sequence[ReportedEvent]) -> Cause | None:
    """Return the newest failure of a probe since a running container started; None without one."""
    running = container.state.running if container.state is not None else None
    if running is None:
        return None
    return _explain_probe(_list_unhealthy_events(pod, container, events), running.started_at or "", container.name)


def _find_killing_probe(
    pod: ReportedPod, container: ReportedContainer, ended: TerminatedReport, events: Sequence[ReportedEvent]
) -> Cause | None:
    """Return the failure of a probe for which the kubelet killed the last run of a container."""
    until = ended.finished_at or "9"
    failures = [
        event
        for event in _list_unhealthy_events(pod, container, events)
        if (event.message or "").startswith(_KILLING) and event.at <= until
    ]
    return _explain_probe(failures, ended.started_at or "", container.name) if ended.exit_code in {137, 143} else None


def _explain_probe(failures: Sequence[ReportedEvent], since: str, container: str) -> Cause | None:
    newest = max((event for event in failures if event.at >= since), key=lambda event: event.at, default=None)
    found = None if newest is None else _PROBE.match(newest.message or "")
    if newest is None or found is None:
        return None
    field = f"{found['kind'].lower()}Probe"
    text = f"container {container}: {' '.join((newest.message or '').split())}"
    return Cause(text, f"repair what the probe asks of container {container}, or correct its {field}")


def _list_unhealthy_events(
    pod: ReportedPod, container: ReportedContainer, events: Sequence[ReportedEvent]
) -> list[ReportedEvent]:
    is_only = len(pod.spec.containers or ()) <= 1
    unhealthy = [event for event in events if event.reason == "Unhealthy"]
    return _select_container_events(container.name, unhealthy, is_only=is_only)


def _select_container_events(
    container: str, events: Sequence[ReportedEvent], *, is_only: bool = False
) -> list[ReportedEvent]:
    """Return the Events about a container; if it is the only one, also those that name none."""
    place, paths = f"{{{container}}}", (event.involved_object.field_path for event in events)
    return [event for event, path in zip(events, paths, strict=True) if path.endswith(place) or (is_only and not path)]


def _explain_image(shown: ContainerReport, events: Sequence[ReportedEvent]) -> tuple[ContainerReport, str]:
    """Return the image's failure; older kubelets tell why only in an Event."""
    failures = [event for event in events if (event.message or "").startswith(_PULL_FAILED)]
    newest = max(_select_container_events(shown.name, failures), key=lambda event: event.at, default=None)
    if newest is not None and shown.message.startswith("Back-off") and ": " not in shown.message:
        shown = replace(shown, message=newest.message or "")
    found = (remedy for pattern, remedy in _IMAGE_REMEDIES if re.search(pattern, shown.message, re.IGNORECASE))
    return shown, next(found, _IMAGE_REMEDY)


def _suggest_configuration(pod: ReportedPod, shown: ContainerReport) -> str:
    created = suggest_creation(shown.message, pod.metadata.namespace)
    if created:
        return created
    if "runAsNonRoot" in shown.message:
        return f"set securityContext.runAsUser of container {shown.name} to another user than 0, or use such an image"
    return f"correct the configuration of container {shown.name}"


def _explain_memory(pod: ReportedPod, shown: ContainerReport) -> tuple[ContainerReport, str]:
    containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    spec = next((container for container in containers if container.name == shown.name), None)
    limits = spec.resources.limits if spec is not None and spec.resources is not None else None
    limit = (limits or {}).get("memory")
    if limit is None:
        text, remedy = "no memory was left for it", f"set requests and limits of memory of container {shown.name}"
    else:
        text = f"it used more memory than its limit {limit}"
        remedy = f"raise resources.limits.memory of container {shown.name}, or let it use less"
    return replace(shown, state=_OUT_OF_MEMORY, message=text), remedy


def _find_last_end(container: ReportedContainer) -> TerminatedReport | None:
    states = (container.state, container.last_state)
    return next((found for state in states if state is not None and (found := state.terminated) is not None), None)


def _suggest_logs(pod: ReportedPod, container: ReportedContainer) -> str:
    is_ended = container.state is not None and container.state.terminated is not None
    previous = "" if is_ended else " --previous"
    return f"read kubectl logs {pod.metadata.name} -c {container.name} -n {pod.metadata.namespace}{previous}"
