"""Decision: the record of one review, with findings, stage notes, status and patch. Observers read it later."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from webhook.core.findings import Code
from webhook.core.kubernetes.admission_request import ALLOWED, ResponseStatus
from webhook.core.patch import NO_PATCH, Patch
from webhook.core.policy_fields import Mode
from webhook.core.quota import Acquire, Receipt
from webhook.core.shares import PodSlot


class Verdict(StrEnum):
    """Outcome of a review, as metrics, logs, `review` and `replay` name it."""

    ADMIT = "Admit"
    DENY = "Deny"
    QUEUE = "Queue"
    UNMATCHED = "Unmatched"
    EXEMPT = "Exempt"
    DEPENDS = "Depends"
    """Workloads only: the owner of the Pods depends on labels that are known only once a Pod exists."""

    __hash__ = str.__hash__  # each review is counted by it, and Enum's own hash is a call in Python


class Half(StrEnum):
    """The webhook that was called: mutating (patches) or validating (checks and charges)."""

    MUTATE = "mutate"
    VALIDATE = "validate"

    __hash__ = str.__hash__  # as above


class Finding(Struct, frozen=True):
    """A violation of the policy. By its `mode`: Enforce denies, Warn warns, Audit only counts."""

    code: Code
    concern: str
    mode: Mode
    message: str
    field: str = ""
    is_advice: bool = False
    """Reported only: Enforce would admit the Pod."""

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class WouldWrite(Struct, frozen=True):
    """Fields that Enforce would write into a new Pod, for one concern in Warn or Audit."""

    concern: str
    mode: Mode
    fields: tuple[str, ...]

    def __str__(self) -> str:
        return f"Enforce would write {', '.join(self.fields)}"


def select_enforced(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that deny."""
    return tuple([finding for finding in findings if finding.mode is Mode.ENFORCE])


class StageNote(Struct, frozen=True, gc=False):
    """One stage of the evaluation and what it found, for `--explain` and the trace."""

    stage: str
    found: str


class Dependence(Struct, frozen=True):
    """A service (None: no service) that may own the Pods of a workload, and the labels that decide it.

    `denied`: its Pods would be denied.
    """

    service: str | None
    labels: tuple[str, ...] = ()
    denied: bool = False

    def __str__(self) -> str:
        return f"{self.service or ''}({' '.join(self.labels)}){' denied' * self.denied}"

    @classmethod
    def parse(cls, text: str) -> "Dependence":
        """Parse the text that `str` returns."""
        service, _, rest = text.partition("(")
        labels, _, denied = rest.partition(")")
        return cls(service or None, tuple(labels.split()), bool(denied))


class ReviewedCall(Struct, frozen=True, gc=False):
    """What was asked and by whom; mostly the same for all Pods of a controller."""

    operation: str = ""
    sub_resource: str = ""
    dry_run: bool = False
    user: str = ""
    namespace: str = ""


class Deviation(Struct, frozen=True, gc=False):
    """Why a Pod was not treated as usual; each "" or False if it was."""

    exemption: str = ""
    degraded: str = ""
    """Why the rewrite left out preferred placement terms, such as `breaker OPEN`."""
    would_degrade: bool = False
    """It would have left them out if the breaker's mode were Enforce."""
    overload: str = ""
    """Why the Pod is gated without being judged."""


class ChargeResult(Struct, frozen=True, gc=False):
    """The request to the store, with or without an answer; neither if there was no such request."""

    asked: Acquire | None = None
    receipt: Receipt | None = None
    uncounted: bool = False
    """The counters were unavailable, and the Pod is admitted without a charge."""


class DecisionInputs(Struct, frozen=True, gc=False):
    """What a decision read besides the policy: enough to repeat it."""

    pod_key: bytes = b""
    """The fields of a new Pod that policies read, encoded; empty if they were not needed in this form."""
    overrides: str = ""
    """The live override entries of the service, a list in JSON; empty without any."""
    namespace_values: Mapping[str, str] = {}
    """The labels of the Namespace that the service's placement reads."""
    annotations_read: tuple[str, ...] = ()
    """The keys of the Pod's annotations that the service's placement reads."""
    slot: PodSlot | None = None
    """The slot of a new Pod of a service with shares."""
    slot_reason: str = ""
    """How the slot came about; known in the mutating half."""


USUAL = Deviation()
NO_CHARGE = ChargeResult()


class Decision(Struct, frozen=True, gc=False):
    """The complete record of one review. It holds no secrets.

    With a `workload` (`deployment.apps/web`) it is about the Pods of its template, which do not exist yet.
    """

    half: Half
    review_uid: str
    verdict: Verdict
    call: ReviewedCall = ReviewedCall()
    service: str | None = None
    policy_hash: str = ""
    pod: str = ""
    pod_uid: str = ""
    deviation: Deviation = USUAL
    would_write: tuple[WouldWrite, ...] = ()
    status: ResponseStatus = ALLOWED
    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()
    patch: Patch = NO_PATCH
    audit: Mapping[str, str] = {}
    charge: ChargeResult = NO_CHARGE
    steps: tuple[StageNote, ...] = ()
    inputs: DecisionInputs = DecisionInputs()
    workload: str = ""
    depends_on: tuple[Dependence, ...] = ()
    """In the policy's order; the last one has no labels, and owns the Pods that none of the others owns."""

    @property
    def allowed(self) -> bool:
        return self.status is ALLOWED

    @property
    def pods_allowed(self) -> bool | None:
        """Whether the Pods are allowed; None if that depends on which service owns them."""
        if not self.depends_on:
            return self.allowed
        return False if all(dependence.denied for dependence in self.depends_on) else None

    @property
    def denials(self) -> tuple[Finding, ...]:
        """The findings that deny; the first one gives the denial its code."""
        return select_enforced(self.findings)
