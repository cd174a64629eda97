"""What a virtual stage writes of its history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from tests.chaos.checkers.facts import US
from tests.chaos.history import BEGAN, ENDED, AuditEvent, ChargeWrite, End, Fault, History, Plan, Review, Status
from webhook.adapters.clocks import VirtualClock
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.document.loading import compute_hash
from webhook.core.kubernetes.pod import Pod
from webhook.core.placement import SERVICE_LABEL
from webhook.core.quota import Cost, CounterPlan

_PARTS = {"controller-1": "controller", "redis": "redis", "server-1": "server"}
_HEAD = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n"


@dataclass
class Written:
    """A history as it grows. `services` is the part of a policy."""

    clock: VirtualClock
    seed: int
    services: str
    audit: list[AuditEvent] = field(default_factory=list)
    charges: list[ChargeWrite] = field(default_factory=list)
    reviews: list[Review] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    statuses: list[Status] = field(default_factory=list)
    parts: Mapping[str, str] = field(default_factory=lambda: _PARTS)

    @property
    def policy(self) -> str:
        return _HEAD + self.services

    @property
    def now(self) -> float:
        return self.clock.now_us() / US

    def carry(self, pod: Pod, service: str) -> Pod:
        """Return a Pod as the mutating half has rewritten it."""
        metadata = pod.metadata
        labels = {**(metadata.labels or {}), SERVICE_LABEL: service}
        annotations = {**(metadata.annotations or {}), HASH_ANNOTATION: compute_hash(self.policy.encode())}
        return replace(pod, metadata=replace(metadata, labels=labels, annotations=annotations))

    def add_request(self, verb: str, pod: Pod, code: int, decision: str = "", **fields: Any) -> None:
        """Write an audit event about a Pod."""
        annotations = {"validate-closed.podgate.io/decision": decision} if decision else {}
        self.audit.append(
            AuditEvent(
                at=fields.get("asked_at") or self.now,
                answered_at=self.now,
                part="kube-apiserver",
                audit_id=str(len(self.audit)),
                verb=verb,
                user=fields.get("user", "alice"),
                resource="pods",
                sub_resource="",
                namespace=pod.metadata.namespace,
                name=pod.metadata.name,
                code=code,
                annotations=annotations,
                response=encode(pod) if code < 300 else None,
            )
        )

    def add_charge(
        self, plan: CounterPlan, uid: str, cost: Cost, charged_us: int, *, refunded: bool = False, probe: bool = False
    ) -> None:
        self.charges.append(
            ChargeWrite(
                at_us=self.clock.now_us(),
                part="redis",
                role="master",
                key=uid,
                tag=plan.tag,
                uid=uid,
                client="",
                charged_us=charged_us,
                generation=0,
                probe=probe,
                refunded=refunded,
                service=plan.service,
                cost=dict(cost),
                high=False,
                windows="",
                source="",
                place="",
            )
        )

    def add_refund(self, plan: CounterPlan, uid: str) -> None:
        """Write the refund of a Pod that is charged, as its record says then, also if nothing counts any more."""
        writes = [write for write in self.charges if write.uid == uid]
        if writes and not writes[-1].refunded:
            self.add_charge(plan, uid, {}, writes[-1].charged_us, refunded=True)

    def add_fault(self, number: int, kind: str, *parts: str, ended: bool = False) -> None:
        self.faults.append(Fault(self.now, number, kind, parts, ENDED if ended else BEGAN))

    def finish(
        self, pods: Sequence[Pod], queue: Mapping[str, Any] | None = None, *, rested: bool = True, **details: Any
    ) -> History:
        """Return the history, with these Pods in the end."""
        end = End(
            at=self.now,
            rested=rested,
            waited_seconds=0,
            missing=(),
            workloads=(),
            pods=[encode(pod) for pod in pods],
            statuses={status.part: status.document for status in self.statuses},
            metrics={},
            queue=queue,
            explanations={},
            service_statuses=(),
            events=(),
            leases=(),
        )
        policies = {compute_hash(self.policy.encode()): self.policy}
        return History(
            plan=Plan(self.seed, end.at, self.parts, policies, (), details=details),
            faults=self.faults,
            audit=self.audit,
            reviews=self.reviews,
            charges=self.charges,
            statuses=self.statuses,
            end=end,
        )


def encode(pod: Pod) -> dict[str, Any]:
    """Return a Pod as a JSON object."""
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(pod))
    return document
