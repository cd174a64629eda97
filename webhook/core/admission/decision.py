"""A decision is a value: what was found, in which stage, for which reason, with the patch. Observers read it later."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from webhook.core.findings import Code
from webhook.core.patch import PatchOperation
from webhook.core.policy_spec import Mode
from webhook.core.quota import Receipt


class Verdict(StrEnum):
    """The word that metrics, logs, `review` and `replay` use for a decision."""

    ADMIT = "Admit"
    DENY = "Deny"
    QUEUE = "Queue"
    UNMATCHED = "Unmatched"
    EXEMPT = "Exempt"
    DEPENDS = "Depends"
    """Of a workload alone: which service owns its Pods depends on labels that only the Pods themselves have."""


class Half(StrEnum):
    """Which webhook was called: the mutating half patches or stays silent, the validating half judges and charges."""

    MUTATE = "mutate"
    VALIDATE = "validate"


class Finding(Struct, frozen=True):
    """Something that the policy objects to. `mode` says what follows: Enforce denies, Warn warns, Audit only counts."""

    code: Code
    concern: str
    mode: Mode
    message: str
    field: str = ""
    is_advice: bool = False
    """It is only told: Enforce would let the Pod pass all the same."""

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class WouldWrite(Struct, frozen=True):
    """What Enforce would write into a new Pod, and admit it, of one concern that is in Warn or Audit."""

    concern: str
    mode: Mode
    fields: tuple[str, ...]

    def __str__(self) -> str:
        return f"Enforce would write {', '.join(self.fields)}"


def enforced(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return those that deny."""
    return tuple([finding for finding in findings if finding.mode is Mode.ENFORCE])


class ResponseStatus(Struct, frozen=True):
    """What a refused caller is told: an HTTP code, Kubernetes' reason word, a message."""

    code: int
    reason: str = ""
    message: str = ""
    retry_after_seconds: int | None = None


ALLOWED = ResponseStatus(200)


class StageNote(Struct, frozen=True):
    """One stage of the evaluation and what it found, for `--explain` and the trace."""

    stage: str
    found: str


class Dependence(Struct, frozen=True):
    """A service that may own the Pods of a workload, None: no service; and the labels that decide it.

    `denied`: Pods that it owns would be.
    """

    service: str | None
    labels: tuple[str, ...] = ()
    denied: bool = False

    def __str__(self) -> str:
        return f"{self.service or ''}({' '.join(self.labels)}){' denied' * self.denied}"

    @classmethod
    def parse(cls, text: str) -> "Dependence":
        """Read what `str` writes."""
        service, _, rest = text.partition("(")
        labels, _, denied = rest.partition(")")
        return cls(service or None, tuple(labels.split()), bool(denied))


class Decision(Struct, frozen=True):
    """The record of one review, complete. Nothing in it is secret.

    With a `workload` (`deployment.apps/web`) it is about the Pods of its template, which do not exist yet.
    """

    half: Half
    review_uid: str
    verdict: Verdict
    operation: str = ""
    sub_resource: str = ""
    dry_run: bool = False
    user: str = ""
    namespace: str = ""
    pod: str = ""
    pod_uid: str = ""
    workload: str = ""
    service: str | None = None
    policy_hash: str = ""
    exemption: str = ""
    degraded: str = ""
    """Why the Pod was rewritten without what its placement only prefers, such as `breaker OPEN`."""
    would_degrade: bool = False
    """It would have been, were the breaker's mode Enforce."""
    would_write: tuple[WouldWrite, ...] = ()
    depends_on: tuple[Dependence, ...] = ()
    """In the order of the policy; the last one has no labels, and owns the Pods where none of the others does."""
    status: ResponseStatus = ALLOWED
    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()
    patch: tuple[PatchOperation, ...] = ()
    audit: Mapping[str, str] = {}
    receipt: Receipt | None = None
    uncounted: bool = False
    """The counters could not be asked, and the Pod is admitted without them."""
    steps: tuple[StageNote, ...] = ()

    @property
    def allowed(self) -> bool:
        return self.status is ALLOWED

    @property
    def pods_allowed(self) -> bool | None:
        """Whether the Pods that it is about are; None where that depends on which service owns them."""
        if not self.depends_on:
            return self.allowed
        return False if all(one.denied for one in self.depends_on) else None

    @property
    def denials(self) -> tuple[Finding, ...]:
        """The findings that deny; the first one gives the denial its code."""
        return enforced(self.findings)
