"""Decision record: one review with the figures of its moment. Explanations recompute everything else from it.

It has no field for environment, arguments, images, volumes or annotation values: see `pod_record`. Its fields are named
here only: `packed_record` makes the packed forms from this declaration.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import NODEFAULT, Raw, Struct
from msgspec.structs import replace

from webhook.core.admission.decision import Half, Verdict
from webhook.core.findings import Code
from webhook.core.kubernetes.pod import Pod
from webhook.core.overrides import Override, decode_entries
from webhook.core.policy_fields import Mode
from webhook.core.reporting.limit_record import RecordedLimit
from webhook.core.reporting.pod_record import find_controlling_owner

ABSENT = Raw(b"null")
"""Nothing is recorded."""


class GroupField(NamedTuple):
    """What a field that the records of a controller's Pods mostly share is in their packed group."""

    place: int
    """New fields go to the end of the group."""
    source: str = ""
    """Its attribute in a `Decision`; "" if it is not read from there."""
    packed: Any = None
    """Its type in the group, if it has another form there."""
    default: Any = NODEFAULT
    """What it is in the group of a replica that does not have it yet."""


class RecordedController(Struct, frozen=True, gc=False, omit_defaults=True):
    """The owner that is the Pod's controller."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class RecordedStatus(Struct, frozen=True, gc=False, omit_defaults=True):
    code: int
    reason: str = ""
    message: str = ""


class RecordedFinding(Struct, frozen=True, gc=False, omit_defaults=True):
    code: Code
    concern: str
    mode: Mode
    message: str
    field: str = ""


class RecordedBreaker(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The breaker as the decision saw it."""

    state: str
    generation: int
    open_until: str = ""
    reason: str = ""


class RecordedSlot(Struct, frozen=True, gc=False, omit_defaults=True):
    """The slot of a Pod in its workload. `intended`: the slot's own variant, if the Pod got another one."""

    number: int
    variant: str
    intended: str = ""
    reason: str = ""
    """How it came about; known in the mutating half."""


class DecisionRecord(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """One decision. Empty fields are left out of the JSON form."""

    id: str
    at: datetime
    replica: str
    half: Annotated[Half, GroupField(4, "half")]
    operation: Annotated[str, GroupField(5, "call.operation")]
    namespace: Annotated[str, GroupField(1, "call.namespace")]
    name: str
    """The Pod's name, or its generateName while it has none."""
    user: Annotated[str, GroupField(8, "call.user")]
    decision: Annotated[Verdict, GroupField(0, "verdict")]
    status: Annotated[RecordedStatus, GroupField(9, "status", RecordedStatus | None)]
    """None in a group: allowed."""
    policy: Annotated[str, GroupField(10, "policy_hash")] = ""
    service: Annotated[str, GroupField(2, "service")] = ""
    sub_resource: Annotated[str, GroupField(6, "call.sub_resource")] = ""
    dry_run: Annotated[bool, GroupField(7, "call.dry_run")] = False
    uid: str = ""
    """Empty in the mutating half of a CREATE: the API server sets it later."""
    owner: Annotated[RecordedController | None, GroupField(3)] = None
    workload: Annotated[str, GroupField(11, "workload")] = ""
    codes: Sequence[str] = ()
    findings: Annotated[Sequence[RecordedFinding], GroupField(12, "findings", tuple[RecordedFinding, ...])] = ()
    exemption: Annotated[str, GroupField(13, "deviation.exemption")] = ""
    degraded: Annotated[str, GroupField(14, "deviation.degraded")] = ""
    limits: Sequence[RecordedLimit] = ()
    breaker: RecordedBreaker | None = None
    uncounted: Annotated[bool, GroupField(15, "charge.uncounted")] = False
    stages: Annotated[Sequence[tuple[str, int]], GroupField(16, packed=tuple[str, ...])] = ()
    """Each stage with its duration in microseconds; in a group without it."""
    trace_id: str = ""
    namespace_labels: Annotated[Mapping[str, str], GroupField(17)] = {}
    recorded: Raw = ABSENT
    """The Pod as the request had it, without the name and uid that the record has."""
    recorded_old: Raw = ABSENT
    """The Pod before an UPDATE, in the same form."""
    overrides: Annotated[Raw, GroupField(18, "inputs.overrides", str, default="")] = ABSENT
    """The live override entries of the service."""
    overload: Annotated[str, GroupField(19, "deviation.overload", default="")] = ""
    """Why the Pod was gated without being judged, "" if it was judged."""

    slot: RecordedSlot | None = None

    @property
    def override_entries(self) -> tuple[Override, ...]:
        return () if self.overrides == ABSENT else decode_entries(bytes(self.overrides))

    @property
    def is_denied(self) -> bool:
        return self.decision is Verdict.DENY

    @property
    def pod(self) -> Pod | None:
        """Return the recorded Pod; None if it was too large."""
        return self._decode(self.recorded)

    @property
    def old_pod(self) -> Pod | None:
        """Return the recorded Pod before an UPDATE."""
        return self._decode(self.recorded_old)

    def _decode(self, recorded: Raw) -> Pod | None:
        pod = msgspec.json.decode(recorded, type=Pod | None)
        if pod is None:
            return None
        name = "" if self.name == pod.metadata.generate_name else self.name
        return replace(pod, metadata=replace(pod.metadata, name=name, uid=self.uid))


def find_controller(pod: Pod) -> RecordedController | None:
    owner = find_controlling_owner(pod)
    return None if owner is None else RecordedController(owner.kind, owner.name, owner.uid)
