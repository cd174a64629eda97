"""Policy test document as frozen types: cases of objects or sequences, with their expected results."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from webhook.core.admission.decision import Verdict
from webhook.core.breaker import State
from webhook.core.findings import Code
from webhook.core.kubernetes.quantity import Duration
from webhook.core.kubernetes.types import format_of
from webhook.core.policy_fields import Count, Name

ReviewedManifest = str | dict[str, Any]
"""The path of a file with objects, relative to the test's file, or one object."""

Labels = dict[str, dict[str, str]]
Amount = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": 1_000_000})]


class ExpectedUse(Struct, frozen=True):
    """The use of one limit, as in the answers of `replay`; absent fields are not compared."""

    used: int | str
    resource: Name | None = None
    window: str | None = None
    hard: int | str | None = None
    of: Name | None = None
    name: str | None = None
    namespace: str | None = None


class Expectation(Struct, frozen=True, rename="camel"):
    """Expected result; absent fields are not compared.

    `codes`: those of all findings, in any mode. `warnings`: a part of each warning, in an entry of its own. `patched`:
    fields of the Pod as it would be stored, by path; `absent`: paths without a value. The others are for sequences.
    """

    decision: Verdict | None = None
    service: str | None = None
    codes: tuple[Code, ...] | None = None
    message: str | None = None
    warnings: tuple[str, ...] | None = None
    patched: dict[str, Any] = {}
    absent: tuple[Name, ...] = ()
    breaker: State | None = None
    used: tuple[ExpectedUse, ...] = ()
    waiting: Amount | None = None
    released: tuple[str, ...] | None = None
    expired: tuple[str, ...] | None = None


class StepOutcome(Struct, frozen=True):
    """The outcome of one request, or of a Pod's start."""

    service: Name
    ok: bool
    latency: Duration | None = None
    uid: Name | None = None


class StepOutcomes(Struct, frozen=True):
    """Counts of requests by result; `latency` is their mean."""

    service: Name
    succeeded: Amount = 0
    failed: Amount = 0
    latency: Duration | None = None


class SequenceStep(Struct, frozen=True, rename="camel"):
    """One event of a sequence, and the expectation of its answer.

    An `object` is requested `count` times; with a `uid`, each of several gets it with -1, -2 and so on.
    """

    at: Annotated[str, format_of("elapsed")]
    object: ReviewedManifest | None = None
    count: Count = 1
    uid: Name | None = None
    user: Name | None = None
    outcome: StepOutcome | None = None
    outcomes: StepOutcomes | None = None
    deleted: Name | None = None
    refused: Name | None = None
    unschedulable: Name | None = None
    bound: Name | None = None
    status: Name | None = None
    namespace_labels: Labels | None = None
    policy: Name | None = None
    store: Literal["down", "up"] | None = None
    expect: Expectation | None = None

    @property
    def at_seconds(self) -> float:
        return 0.0 if self.at in {"0", "0s"} else Duration.parse(self.at).us / 1_000_000


class PolicyTestCase(Struct, frozen=True, rename="camel"):
    """One case: `objects` that are each reviewed alone, or a `sequence` in virtual time."""

    name: Name
    objects: tuple[ReviewedManifest, ...] = ()
    sequence: tuple[SequenceStep, ...] = ()
    namespace: Annotated[str, format_of("dns-label")] | None = None
    user: Name | None = None
    namespace_labels: Labels = {}
    expect: Expectation | None = None


class PolicyTest(Struct, frozen=True, rename="camel"):
    """One document: the policy, relative to its file, and the cases. `namespace` and labels apply to all cases."""

    api_version: Literal["podgate.io/v1alpha1"]
    kind: Literal["PolicyTest"]
    policy: Name
    cases: Annotated[tuple[PolicyTestCase, ...], Meta(extra_json_schema={"minItems": 1})]
    namespace: Annotated[str, format_of("dns-label")] = "default"
    namespace_labels: Labels = {}
