"""Decision record: one review with the figures of its moment. Explanations recompute everything else from it.

It has no field for environment, arguments, images, volumes or annotation values: see `pod_record`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from webhook.core.admission.decision import Half, Verdict
from webhook.core.findings import Code
from webhook.core.kubernetes.pod import Pod
from webhook.core.overrides import Override, of_json
from webhook.core.policy_spec import Mode
from webhook.core.reporting.limit_record import RecordedLimit
from webhook.core.reporting.pod_record import controlling_owner

ABSENT = Raw(b"null")
"""Nothing is recorded."""


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


class DecisionRecord(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """One decision. Empty fields are left out of the JSON form."""

    id: str
    at: datetime
    replica: str
    half: Half
    operation: str
    namespace: str
    name: str
    """The Pod's name, or its generateName while it has none."""
    user: str
    decision: Verdict
    status: RecordedStatus
    policy: str = ""
    service: str = ""
    sub_resource: str = ""
    dry_run: bool = False
    uid: str = ""
    """Empty in the mutating half of a CREATE: the API server sets it later."""
    owner: RecordedController | None = None
    workload: str = ""
    codes: Sequence[str] = ()
    findings: Sequence[RecordedFinding] = ()
    exemption: str = ""
    degraded: str = ""
    limits: Sequence[RecordedLimit] = ()
    breaker: RecordedBreaker | None = None
    uncounted: bool = False
    stages: Sequence[tuple[str, int]] = ()
    """Each stage with its duration in microseconds."""
    trace_id: str = ""
    namespace_labels: Mapping[str, str] = {}
    recorded: Raw = ABSENT
    """The Pod as the request had it, without the name and uid that the record has."""
    recorded_old: Raw = ABSENT
    """The Pod before an UPDATE, in the same form."""
    overrides: Raw = ABSENT
    """The live override entries of the service."""
    overload: str = ""
    """Why the Pod was gated without being judged, "" if it was judged."""

    @property
    def override_entries(self) -> tuple[Override, ...]:
        return () if self.overrides == ABSENT else of_json(bytes(self.overrides))

    @property
    def is_denied(self) -> bool:
        return self.decision is Verdict.DENY

    @property
    def pod(self) -> Pod | None:
        """Return the recorded Pod; None if it was too large."""
        return self._decoded(self.recorded)

    @property
    def old_pod(self) -> Pod | None:
        """Return the recorded Pod before an UPDATE."""
        return self._decoded(self.recorded_old)

    def _decoded(self, recorded: Raw) -> Pod | None:
        pod = msgspec.json.decode(recorded, type=Pod | None)
        if pod is None:
            return None
        name = "" if self.name == pod.metadata.generate_name else self.name
        return replace(pod, metadata=replace(pod.metadata, name=name, uid=self.uid))


def controller_of(pod: Pod) -> RecordedController | None:
    owner = controlling_owner(pod)
    return None if owner is None else RecordedController(owner.kind, owner.name, owner.uid)
