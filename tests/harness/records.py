"""Records for tests of the observers, filled as by a real review."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from webhook.core.admission.decision import Decision, Finding, Half, ReviewedCall, Verdict
from webhook.core.breaker import TRANSITIONS, BreakerView, State, Transition, TransitionCause
from webhook.core.findings import Code
from webhook.core.kubernetes.admission_request import ResponseStatus
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.overrides import Override
from webhook.core.policy.model import LoadedPolicy, Match, Policy, Service
from webhook.core.policy_fields import Mode
from webhook.core.quota import DeniedBy, Holder, Receipt, ServiceSnapshot, Use
from webhook.errors import StoreFailure, StoreFault
from webhook.ports import Caller, Review

CALLER = Caller("apiserver", "prod-eu-1", "issuer", "subject", "CN=kube-apiserver", 1_800_003_600, 1_801_000_000)
AT_NS = 1_800_000_000_123_000_000
AT_US = AT_NS // 1000

ADMITTED = Decision(
    half=Half.VALIDATE,
    review_uid="review-1",
    verdict=Verdict.ADMIT,
    call=ReviewedCall("CREATE", user="system:serviceaccount:kube-system:replicaset-controller", namespace="payments"),
    pod="payment-api-7d9c",
    pod_uid="pod-1",
    service="payment-api",
    policy_hash="0123456789abcdef",
)


def changed(decision: Decision, **fields: Any) -> Decision:
    """Return the decision with other fields; those of its parts are given by their names, too."""
    for part in ("call", "deviation", "charge", "inputs"):
        record = getattr(decision, part)
        own = {name: fields.pop(name) for name in record.__struct_fields__ if name in fields}
        fields[part] = replace(record, **own)
    return replace(decision, **fields)


OVER = Use("1m", "pods", used=50, hard=50, asked=1, free_at_us=AT_US + 12_000_000)
OVER_ITS_POOL = Use(
    "1m", "cpu", used=300_000, hard=300_000, asked=500, free_at_us=AT_US + 2_000_000, of=Holder.POOL, name="prod"
)
QUOTA_DENIED = changed(
    ADMITTED,
    verdict=Verdict.DENY,
    status=ResponseStatus(
        429, "TooManyRequests", "QuotaExceeded: service payment-api: pods in 1m: hard 50, used 50, asked 1"
    ),
    findings=(Finding(Code.QUOTA_EXCEEDED, "quota", Mode.ENFORCE, "hard 50, used 50"),),
    receipt=Receipt(AT_US, refused=DeniedBy.QUOTA, over=(OVER, OVER_ITS_POOL)),
)
BREAKER_DENIED = replace(
    ADMITTED,
    verdict=Verdict.DENY,
    status=ResponseStatus(503, "ServiceUnavailable", "BreakerOpen: service payment-api: the breaker is open"),
    findings=(Finding(Code.BREAKER_OPEN, "breaker", Mode.ENFORCE, "is open"),),
)

ADVISED = changed(
    ADMITTED,
    operation="UPDATE",
    user="alice",
    pod="",
    pod_uid="",
    workload="deployment.apps/payment-api",
    findings=(
        Finding(Code.PLACEMENT_CONFLICT, "placement", Mode.WARN, "Pods will be denied: scheduler"),
        Finding(Code.PLACEMENT_CONFLICT, "placement", Mode.WARN, "Pods will be denied: zone"),
    ),
)


def review(
    decision: Decision = ADMITTED, duration_ns: int = 700_000, stages: Sequence[tuple[str, int]] = (), **more: Any
) -> Review:
    """Return a review; `stages` are names and ends in nanoseconds."""
    names, ends_ns = tuple(name for name, _ in stages), tuple(end for _, end in stages)
    return Review(decision, CALLER, AT_NS, duration_ns, names, ends_ns, **more)


def failure_of(text: str) -> StoreFailure:
    """Return the failure of the store that is shown as this text, such as `timeout: no answer`."""
    word, _, rest = text.partition(": ")
    return StoreFailure(rest, StoreFault(word)) if word in set(StoreFault) else StoreFailure(text)


def policy(*services: str, policy_hash: str = "0123456789abcdef") -> LoadedPolicy:
    return LoadedPolicy(
        Policy(
            "podgate.io/v1alpha1",
            "Policy",
            tuple(Service(name, Match(namespaces=("payments",))) for name in services),
        ),
        policy_hash,
    )


def override(service: str = "payment-api", until: str = "2026-12-01T04:00:00Z") -> Override:
    return Override(service, until, "INC-1", quota_factor=Quantity.parse("3"))


def transition(
    old: State, new: State, reason: str = "", service: str = "payment-api", cause: TransitionCause | None = None
) -> Transition:
    """Return a transition. Without a cause it is by the first that the table has for these states."""
    return Transition(service, old, new, AT_US, reason, 1, cause or a_cause(old, new))


def a_cause(old: State, new: State) -> TransitionCause:
    """Return a cause of a change of state, or of a probe that expired where the state stays."""
    found = (cause for (state, cause), after in TRANSITIONS.items() if (state, after) == (old, new))
    return TransitionCause.PROBE_EXPIRED if old is new else next(found)


def look(*uses: Use, state: State | None = None, namespace: str = "", **view: Any) -> ServiceSnapshot:
    breaker = BreakerView(state, 1, AT_US - 29_000_000, **view) if state else None
    return ServiceSnapshot(AT_US, {namespace: uses} if uses else {}, breaker)
