"""Facts of a history that several checkers read: Pods that exist, how they were judged, and what they were charged."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from tests.chaos.checkers.faults import Faults, list_unplanned
from tests.chaos.history import NOT_RECORDED, AuditEvent, ChargeWrite, History, Review
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document.loading import load_effective
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods import ownership
from webhook.core.pods.ownership import OwnedPod
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_fields import Mode

US = 1_000_000
HASH_ANNOTATION = "podgate.io/policy-hash"
QUEUE_GATE = "podgate.io/quota"
_SOME_TIME = "2026-01-01T00:00:00Z"
SEEN_SECONDS = 2.5
"""A review is mostly seen within two seconds."""
BUCKETS = 64
"""A charge leaves a window W at an age between W and W + W/64."""


class CreatedPod(NamedTuple):
    """A Pod that the API server stored."""

    uid: str
    namespace: str
    name: str
    asked_at: float
    answered_at: float
    document: Mapping[str, Any]
    annotations: Mapping[str, str]
    user: str

    def __str__(self) -> str:
        return f"Pod {self.namespace}/{self.name} ({self.uid})"

    @property
    def labels(self) -> Mapping[str, str]:
        labels: Mapping[str, str] = self.document.get("metadata", {}).get("labels") or {}
        return labels

    @property
    def policy_hash(self) -> str:
        return str((self.document.get("metadata", {}).get("annotations") or {}).get(HASH_ANNOTATION, ""))

    @property
    def is_gated(self) -> bool:
        return has_gate(self.document)

    @property
    def decision(self) -> str:
        """What the validating half annotated, "" if it was not called."""
        found = [value for key, value in self.annotations.items() if is_validating_key(key)]
        return found[0] if found else ""


def is_validating_key(key: str) -> bool:
    """Return whether an audit annotation is the decision of a validating webhook of Podgate."""
    webhook, _, name = key.partition("/")
    return name == "decision" and "validat" in webhook


def has_gate(document: Mapping[str, Any]) -> bool:
    gates = document.get("spec", {}).get("schedulingGates") or []
    return any(gate.get("name") == QUEUE_GATE for gate in gates)


class Facts:
    """A history, indexed."""

    def __init__(self, history: History) -> None:
        self.faults = Faults(history)
        # Without a step, a review that was seen late was read late.
        is_off = self.faults.has_clock_steps
        self.history = replace(history, reviews=[time_review(each) if is_off else each for each in history.reviews])

    @cached_property
    def policies(self) -> Mapping[str, CompiledPolicy]:
        return {key: compile_document(text, key) for key, text in self.history.plan.policies.items()}

    @cached_property
    def policy_spans(self) -> Mapping[str, tuple[float, float]]:
        """The first and the last review by each policy."""
        spans: dict[str, tuple[float, float]] = {}
        for review in self.history.reviews:
            first, _ = spans.get(review.policy, (review.at, review.at))
            spans[review.policy] = min(first, review.at), max(review.at, spans.get(review.policy, (0, 0))[1])
        return spans

    def list_policies(self, begin: float, end: float) -> list[CompiledPolicy]:
        """Return the policies by which Pods were judged in a time; all if that is not known."""
        found = [
            self.policies[key]
            for key, (first, last) in self.policy_spans.items()
            if key in self.policies and first - 1 <= end and begin <= last + 1
        ]
        return found or list(self.policies.values())

    @cached_property
    def creations(self) -> Sequence[AuditEvent]:
        """Each request to create a Pod that was no dry run."""
        return [
            event
            for event in self.history.audit
            if (event.verb, event.resource, event.sub_resource) == ("create", "pods", "") and not event.is_dry_run
        ]

    @cached_property
    def created(self) -> Mapping[str, CreatedPod]:
        """The Pods that were stored, by uid."""
        found = {}
        for event in self.creations:
            if event.code == 201 and isinstance(event.response, Mapping):
                metadata = event.response["metadata"]
                found[metadata["uid"]] = CreatedPod(
                    uid=metadata["uid"],
                    namespace=metadata.get("namespace", event.namespace),
                    name=metadata["name"],
                    asked_at=event.at,
                    answered_at=event.answered_at,
                    document=event.response,
                    annotations=event.annotations,
                    user=event.user,
                )
        return found

    @cached_property
    def judged(self) -> Mapping[str, Sequence[Review]]:
        """The reviews of new Pods by the validating half, by uid, in the order of their time."""
        found: dict[str, list[Review]] = defaultdict(list)
        for review in self.history.reviews:
            is_new = (review.half, review.operation, review.sub_resource) == ("validate", "CREATE", "")
            if is_new and review.uid and not review.is_dry_run:
                found[review.uid].append(review)
        return found

    @cached_property
    def charges(self) -> Mapping[str, Sequence[ChargeWrite]]:
        """The writes of each Pod's record at primaries, by uid, in the order of their time."""
        found: dict[str, list[ChargeWrite]] = defaultdict(list)
        for write in sorted(map(self._time_write, self.history.charges), key=lambda write: write.at_us):
            if write.role != "slave":
                found[write.uid].append(write)
        return found

    def _time_write(self, write: ChargeWrite) -> ChargeWrite:
        """Return a write with the time at which it was seen, if the clock of a Redis was off for a while."""
        is_off = write.seen_at and self.faults.has_clock_steps
        return replace(write, at_us=round(write.seen_at * US)) if is_off else write

    @cached_property
    def owned(self) -> Mapping[str, OwnedPod]:
        """The service, cost and scope of each stored Pod that a service owns, by uid."""
        found = {}
        for uid, created in self.created.items():
            compiled = self.find_policy(created)
            owned = ownership.find_ownership(read_pod(created.document), compiled, {}) if compiled else None
            if owned is not None and not self.is_exempt(uid):
                found[uid] = owned
        return found

    def is_exempt(self, uid: str) -> bool:
        """Return whether a review says that the policy leaves a Pod alone."""
        reviews = self.judged.get(uid, ())
        return any(review.decision in {"Exempt", "Unmatched"} for review in reviews)

    def find_policy(self, created: CreatedPod) -> CompiledPolicy | None:
        """Return the policy that a Pod carries; of one that carries none, that of the time."""
        known = self.policies.get(created.policy_hash)
        return known or next(iter(self.list_policies(created.asked_at, created.answered_at)), None)

    def find_plan(self, uid: str) -> Any:
        """Return the plan under which a stored Pod counts; None without one."""
        owned, compiled = self.owned.get(uid), self.find_policy(self.created[uid])
        return None if owned is None or compiled is None else compiled.plans.get(owned.service)

    def list_tags(self, service: str) -> set[str]:
        """Return the tags under which a service counts by each policy: in a Cluster they are on one node each."""
        plans = (policy.plans.get(service) for policy in self.policies.values())
        return {plan.tag for plan in plans if plan is not None}

    def is_enforced(self, uid: str) -> bool:
        plan = self.find_plan(uid)
        return plan is not None and plan.quota_mode is Mode.ENFORCE

    def has_answer(self, uid: str) -> bool:
        """Return whether a server has judged a stored Pod."""
        return bool(self.judged.get(uid)) or bool(self.created[uid].decision)

    def is_refunded(self, uid: str) -> bool:
        writes = self.charges.get(uid, ())
        return bool(writes) and writes[-1].refunded

    def find_charged_at(self, uid: str) -> float | None:
        """Return when a Pod was charged by the store's clock; None if it was not, or was refunded."""
        writes = self.charges.get(uid, ())
        if not writes:
            found = self.snapshot_charges.get(uid)
            return None if found is None else found / US
        moments = [write.charged_us for write in writes if write.charged_us]
        return moments[-1] / US if moments and not writes[-1].refunded else None

    @cached_property
    def snapshot_charges(self) -> Mapping[str, int]:
        """When Pods were charged, in microseconds, by what primaries held: also where no write was recorded."""
        found: dict[str, int] = {}
        for snapshot in self.history.redis:
            for charges in snapshot.charges.values() if snapshot.role != "slave" else ():
                found.update(charges)
        return found

    def is_recorded(self, begin: float, end: float) -> bool:
        """Return whether all writes of charges in a time are known, and their times."""
        if any(since <= end and begin <= until for since, until in self._unrecorded):
            return False
        return self.is_timed(end)

    def is_timed(self, at: float) -> bool:
        """Return whether times of charges can be compared: after a step of Redis' clock, counters have their own."""
        steps = [span for span in self.faults.spans if span.steps_clock and self.faults.is_of_store(span)]
        return not any(span.began <= at for span in steps)

    @cached_property
    def _unrecorded(self) -> Sequence[tuple[float, float]]:
        return [(since, until) for _, since, until in list_unplanned(self.history, NOT_RECORDED)]

    @cached_property
    def server_count(self) -> int:
        """How many servers divide the limits while the store is away."""
        parts = sum(kind == "server" for kind in self.history.plan.parts.values())
        return int(self.history.plan.details.get("replicas", parts)) or 1


def time_review(review: Review) -> Review:
    """Return a review with the time at which it was seen, if its server's clock was off."""
    if not review.seen_at or abs(review.seen_at - review.at) <= SEEN_SECONDS:
        return review
    return replace(review, at=review.seen_at - SEEN_SECONDS / 2)


def compile_document(text: str, policy_hash: str) -> CompiledPolicy:
    return CompiledPolicy(LoadedPolicy(load_effective(text.encode(), None).policy, policy_hash))


def read_pod(document: Mapping[str, Any]) -> Pod:
    """Return the fields of a Pod that its ownership depends on."""
    metadata = {"creationTimestamp": _SOME_TIME, **document.get("metadata", {})}
    metadata["creationTimestamp"] = metadata["creationTimestamp"] or _SOME_TIME
    return Pod.from_document({"metadata": metadata, "spec": document.get("spec", {})})


def read_cost(write: ChargeWrite) -> Mapping[str, int]:
    """Return the amounts of a charge: Redis has them as JSON."""
    cost = msgspec.json.decode(write.cost) if isinstance(write.cost, str) else write.cost
    return {name: amount for name, amount in cost.items() if isinstance(amount, int)}
