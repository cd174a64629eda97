"""Histories for tests of checkers, built fact by fact. Times are seconds after START."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.chaos.checkers.replica_counts import LEASES
from tests.chaos.history import (
    BEGAN,
    DONE,
    ENDED,
    Act,
    AuditEvent,
    ChargeWrite,
    End,
    Fault,
    History,
    Plan,
    PlannedFault,
    Review,
    Status,
    Transition,
)
from webhook.core.document.loading import compute_hash

START = 1_800_000_000.0
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  failureMode: Closed
  match: {namespaces: [shop]}
  placement: {schedulerName: podgate-scheduler}
  quota: {windows: [{window: 64s, hard: {pods: 2}}]}
- name: free
  match: {namespaces: [open]}
  quota: {windows: [{window: 64s, hard: {pods: 2}}], whenStoreUnavailable: Allow}
- name: api
  failureMode: Closed
  match: {namespaces: [api]}
  breaker:
    outcomes: {source: Pushed, reporters: [edge]}
    errorRate: {percent: 95, interval: 1s, consecutive: 2, minimumOutcomes: 2}
    openFor: 10s
    halfOpen: {probes: 1, probeTimeout: 30s}
- name: noisy
  failureMode: Closed
  match: {namespaces: [noisy]}
  quota: {windows: [{window: 64s, hard: {pods: 1}}]}
  breaker: {quotaExceeded: {count: 2, within: 10s, countBy: Request}, openFor: 10s}
- name: jobs
  match: {namespaces: [jobs]}
  quota:
    windows: [{window: 64s, hard: {pods: 9}}]
    whenExceeded: Queue
    queue: {maxWait: 1h, groups: {from: [Annotations]}}
- name: split
  match: {namespaces: [split]}
  placement:
    shares:
      variants:
      - {name: spot, weight: 80, nodeSelector: {kind: spot}}
      - {name: on-demand, weight: 20, nodeSelector: {kind: on-demand}}
"""
HASH = compute_hash(POLICY.encode())
SERVICES = {"shop": "web", "open": "free", "api": "api", "noisy": "noisy", "jobs": "jobs", "split": "split"}
"""The service of each namespace."""
SERVERS = ("server-1", "server-2")
_END_LISTS = ("missing", "workloads", "pods", "service_statuses", "events", "leases")
_PARTS = {**dict.fromkeys(SERVERS, "server"), "redis": "redis"}


class BuiltHistory:
    """A history. `build` returns it; until then everything may still be added."""

    def __init__(self, **parts: str) -> None:
        self.parts = {**_PARTS, **parts}
        self.planned: list[PlannedFault] = []
        self.faults: list[Fault] = []
        self.acts: list[Act] = []
        self.audit: list[AuditEvent] = []
        self.reviews: list[Review] = []
        self.charges: list[ChargeWrite] = []
        self.statuses: list[Status] = []
        self.transitions: list[Transition] = []
        self.logs: dict[str, str] = {}
        self.end: dict[str, Any] = {}

    def hurt(self, kind: str, parts: str | Sequence[str], began: float, ended: float, **details: str) -> None:
        """Hurt a part, or the link between two."""
        number, hit = len(self.planned) + 1, (parts,) if isinstance(parts, str) else tuple(parts)
        self.planned.append(PlannedFault(number, kind, hit, began, ended))
        self.faults.append(Fault(START + began, number, kind, hit, BEGAN, details))
        self.faults.append(Fault(START + ended, number, kind, hit, ENDED, details))

    def admit(self, uid: str, at: float, namespace: str = "shop", **given: Any) -> None:
        """Let a server admit and charge a Pod, and the API server store it."""
        self.review(uid, at, "Admit", namespace, **given.pop("review", {}))
        self.charge(uid, at, SERVICES[namespace], namespace=namespace)
        self.store(uid, at, namespace, decision="Admit", **given)

    def store(self, uid: str, at: float, namespace: str = "shop", *, decision: str = "", **given: Any) -> None:
        """Let the API server store a Pod."""
        annotations = {"validate-closed.podgate.io/decision": decision} if decision else given.pop("audit", {})
        self.request("create", uid, at, namespace, code=201, audit=annotations, **given)

    def request(self, verb: str, uid: str, at: float, namespace: str = "shop", **given: Any) -> None:
        code = given.pop("code", 201)
        annotations, message = given.pop("audit", {}), given.pop("message", "")
        began = given.pop("began", at - 0.01)
        document = build_pod(uid, namespace, **given) if code < 300 else None
        event = AuditEvent(
            at=START + began,
            answered_at=START + at + 0.01,
            part="kube-apiserver-1",
            audit_id=uid,
            verb=verb,
            user="alice",
            resource="pods",
            sub_resource="",
            namespace=namespace,
            name=uid,
            code=code,
            message=message,
            annotations=annotations,
            response=document,
        )
        self.audit.append(event)

    def review(self, uid: str, at: float, decision: str, namespace: str = "shop", **given: Any) -> None:
        """Let a server record a review; further fields are those of its record."""
        replica, state = given.pop("replica", "a"), given.pop("state", "")
        generation, is_dry_run = given.pop("generation", 0), given.pop("dry_run", False)
        code, message = given.pop("code", 200 if decision == "Admit" else 429), given.pop("message", "")
        self.reviews.append(
            Review(
                at=START + at,
                part="server-1",
                replica=replica,
                id=f"{len(self.reviews):013}-0",
                half="validate",
                operation="CREATE",
                sub_resource="",
                namespace=namespace,
                name=uid,
                uid=uid,
                user="alice",
                service=SERVICES[namespace],
                decision=decision,
                code=code,
                reason="",
                message=message,
                policy=HASH,
                is_dry_run=is_dry_run,
                uncounted=False,
                owner_uid="",
                breaker_state=state,
                breaker_generation=generation,
                record=given,
            )
        )

    def charge(self, uid: str, at: float, service: str = "web", *, refunded: bool = False, **given: Any) -> None:
        charged = given.get("charged", at)
        self.charges.append(
            ChargeWrite(
                at_us=round((START + at) * 1e6),
                part="redis",
                role="master",
                key=uid,
                tag=service,
                uid=uid,
                client="1",
                charged_us=round((START + charged) * 1e6),
                generation=0,
                probe=False,
                refunded=refunded,
                service=service,
                cost={"pods": 1},
                high=False,
                windows="",
                source="",
                place=f"{given.get('namespace', 'shop')}/{uid}",
                seen_at=START + given.get("seen", at),
            )
        )

    def move(self, at: float, old: str, new: str, generation: int, service: str = "api", **given: str) -> None:
        self.transitions.append(
            Transition(
                at=START + at,
                part=given.get("part", "server-1"),
                message="breaker transition",
                service=service,
                variant="",
                old=old,
                new=new,
                reason=given.get("reason", "reason"),
                generation=generation,
            )
        )

    def report(self, at: float, failed: int, outcomes: int, service: str = "api", **given: Any) -> None:
        """Report outcomes; the answer takes `seconds`."""
        details, seconds = {"outcomes": outcomes, "failed": failed}, given.get("seconds", 0)
        outcome = given.get("outcome", DONE)
        moment = START + at
        self.acts.append(
            Act(
                moment,
                moment + seconds,
                "report",
                "Outcome",
                "",
                service,
                outcome,
                code=200,
                message="",
                details=details,
            )
        )

    def show(self, at: float, *services: Mapping[str, Any], part: str = "server-1") -> None:
        """Let a server show its status."""
        self.statuses.append(Status(START + at, part, build_status(*services)))

    def count(self, at: float, servers: int, part: str = "server-1") -> None:
        """Let a server show by how many it divides limits."""
        replicas = {"count": servers, "ordinal": 0, "source": LEASES}
        self.statuses.append(Status(START + at, part, {"replicas": replicas}))

    def finish(self, at: float, **given: Any) -> None:
        self.end = {"at": START + at, **given}

    def build(self, **details: Any) -> History:
        end = None
        if self.end:
            usual: dict[str, Any] = dict.fromkeys(_END_LISTS, ())
            usual |= {"rested": True, "waited_seconds": 0, "queue": None}
            usual |= {"statuses": {}, "metrics": {}, "explanations": {}}
            end = End(**{**usual, **self.end})
        return History(
            plan=Plan(1, 60, self.parts, {HASH: POLICY}, self.planned, START, details),
            faults=self.faults,
            acts=self.acts,
            audit=self.audit,
            reviews=sorted(self.reviews, key=lambda review: review.at),
            charges=self.charges,
            statuses=self.statuses,
            transitions=self.transitions,
            end=end,
            logs=self.logs,
        )


def build_pod(uid: str, namespace: str = "shop", **given: Any) -> dict[str, Any]:
    """Return a Pod as it is stored; `labels`, `annotations` and `owner` add to its metadata, others to its spec."""
    service = SERVICES[namespace]
    metadata = {
        "name": uid,
        "namespace": namespace,
        "uid": uid,
        "labels": {"podgate.io/service": service, **given.pop("labels", {})},
        "annotations": {"podgate.io/policy-hash": HASH, **given.pop("annotations", {})},
    }
    if owner := given.pop("owner", ""):
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
        ]
    spec = {"containers": [{"name": "c"}], "schedulerName": "podgate-scheduler", **given}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def build_status(*services: Mapping[str, Any]) -> dict[str, Any]:
    return {"store": {"healthy": True, "error": None, "mode": None}, "services": list(services), "notReady": []}


def build_limit_row(used: int, hard: int = 2, asked: int = 1, **given: Any) -> dict[str, Any]:
    """Return the row of a limit in a record of a denial."""
    row = {"of": "service", "name": "web", "window": "64s", "resource": "pods", "hard": hard, "used": used}
    return {**row, "asked": asked, "over": True, **given}


def list_gates() -> Sequence[Mapping[str, str]]:
    return [{"name": "podgate.io/quota"}]
