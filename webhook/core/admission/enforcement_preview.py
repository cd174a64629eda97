"""Preview of Enforce for concerns in Warn or Audit: the fields that it would write into a new Pod.

A field that Enforce would write is not reported as missing: a trial of a policy shows only what Enforce would deny.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from webhook.core.admission import mutation
from webhook.core.admission.decision import Finding, WouldWrite
from webhook.core.container_resources import shorten_name
from webhook.core.container_resources.rewrite import is_limit_removal
from webhook.core.findings import Code
from webhook.core.kubernetes.pod import Pod
from webhook.core.patch import PatchOperation, parse_pointer
from webhook.core.policy.model import Service
from webhook.core.policy_fields import Mode

_TRIED = frozenset({Mode.WARN, Mode.AUDIT})
_CONTAINERS_SHOWN_MAX = 3


class EnforcementPreview(NamedTuple):
    """A new Pod as Enforce would have written it, and the writes that are only hypothetical."""

    pod: Pod
    writes: tuple[WouldWrite, ...]

    def select_writes(self, findings: Collection[Finding]) -> tuple[WouldWrite, ...]:
        """Return the writes of concerns that Enforce would not deny; none for a Pod that was not mutated."""
        if any(finding.code is Code.MUTATION_MISSING for finding in findings):
            return ()
        objecting = {finding.concern for finding in findings if not finding.is_advice}
        return tuple(write for write in self.writes if write.concern not in objecting)


def preview_enforcement(pod: Pod, service: Service) -> EnforcementPreview:
    """Apply to the Pod what Enforce would write for concerns in Warn or Audit. ValueError: an unreadable quantity."""
    modes = service.modes
    operations: list[PatchOperation] = []
    writes: list[WouldWrite] = []
    for concern, mode, written in (
        ("placement", modes.placement, mutation.place_pod),
        ("resources", modes.resources, mutation.set_resources),
    ):
        found = list(filter(_lasts, written(pod, service))) if mode in _TRIED else []
        if found:
            operations += found
            writes.append(WouldWrite(concern, mode, _describe_fields(pod, found)))
    return EnforcementPreview(mutation.apply_patch(pod, operations), tuple(writes))


def _lasts(operation: PatchOperation) -> bool:
    """Return whether a write is seen in the stored Pod: of removals only a limit's.

    Other removed fields are defaulted again by the API server, such as the priority of the former class.
    """
    return operation.op != "remove" or is_limit_removal(operation)


def _describe_fields(pod: Pod, operations: Iterable[PatchOperation]) -> tuple[str, ...]:
    """Describe the writes: labels, annotations, fields of the spec, and the containers whose resources are set."""
    fields: dict[str, None] = {}
    containers: dict[str, None] = {}
    for operation in operations:
        root, field, *rest = parse_pointer(operation.path)
        if root == "metadata":
            keys = rest or operation.value
            fields.update({f"metadata.{field}[{key}]": None for key in keys})
        elif field in {"containers", "initContainers"}:
            own = pod.spec.containers if field == "containers" else pod.spec.init_containers
            containers[shorten_name((own or ())[int(rest[0])])] = None
        else:
            fields[f"spec.{field}"] = None
    return (*fields, *_describe_containers(list(containers)))


def _describe_containers(names: list[str]) -> tuple[str, ...]:
    if not names:
        return ()
    shown, more = names[:_CONTAINERS_SHOWN_MAX], len(names) - _CONTAINERS_SHOWN_MAX
    kind = "container" if len(names) == 1 else "containers"
    return (f"resources of {kind} {' and '.join([', '.join(shown)] + [f'{more} more'] * (more > 0))}",)
