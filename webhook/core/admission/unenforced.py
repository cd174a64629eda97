"""What Enforce would do to a new Pod of a service that is in Warn or Audit: write into it and admit it, or deny it.

Who tries a policy out wants to know what it would deny. What is merely not written yet is no objection.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from webhook.core.admission import mutation
from webhook.core.admission.decision import Finding, WouldWrite
from webhook.core.container_resources import shown_name
from webhook.core.findings import Code
from webhook.core.kubernetes.pod import Pod
from webhook.core.patch import PatchOperation
from webhook.core.policy.model import Service
from webhook.core.policy_spec import Mode

_TRIED = frozenset({Mode.WARN, Mode.AUDIT})
_MOST_SHOWN = 3


class EnforcedPod(NamedTuple):
    """A new Pod as the check is to see it, and what of it was not really written."""

    pod: Pod
    writes: tuple[WouldWrite, ...]

    def admitted(self, findings: Collection[Finding]) -> tuple[WouldWrite, ...]:
        """Return what Enforce would write and admit: nothing of a concern that it would deny by `findings`.

        Nor of a Pod that the mutating half never saw.
        """
        if any(finding.code is Code.MUTATION_MISSING for finding in findings):
            return ()
        objecting = {finding.concern for finding in findings if not finding.is_advice}
        return tuple(write for write in self.writes if write.concern not in objecting)


def tried(pod: Pod, service: Service) -> EnforcedPod:
    """Return the Pod as it is, but for what is in Warn or Audit: that is as Enforce would have written it.

    ValueError: an unreadable quantity.
    """
    modes = service.modes
    operations: list[PatchOperation] = []
    writes: list[WouldWrite] = []
    for concern, mode, written in (
        ("placement", modes.placement, mutation.placed),
        ("resources", modes.resources, mutation.ranged),
    ):
        # What a removal takes out, such as the priority of a former class, the API server fills in anew.
        found = [one for one in written(pod, service) if one.op != "remove"] if mode in _TRIED else []
        if found:
            operations += found
            writes.append(WouldWrite(concern, mode, _fields(pod, found)))
    return EnforcedPod(mutation.patched(pod, operations), tuple(writes))


def _fields(pod: Pod, operations: Iterable[PatchOperation]) -> tuple[str, ...]:
    """Return, in a few words, what is written: fields of the spec, and of containers whose resources."""
    fields: dict[str, None] = {}
    containers: dict[str, None] = {}
    for operation in operations:
        _, _, field, *rest = operation.path.split("/")
        if field in {"containers", "initContainers"}:
            own = pod.spec.containers if field == "containers" else pod.spec.init_containers
            containers[shown_name((own or ())[int(rest[0])])] = None
        else:
            fields[f"spec.{field}"] = None
    return (*fields, *_whose(list(containers)))


def _whose(names: list[str]) -> tuple[str, ...]:
    if not names:
        return ()
    shown, more = names[:_MOST_SHOWN], len(names) - _MOST_SHOWN
    kind = "container" if len(names) == 1 else "containers"
    return (f"resources of {kind} {' and '.join([', '.join(shown)] + [f'{more} more'] * (more > 0))}",)
