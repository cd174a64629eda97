"""Observed requests: events played under the policy in force, and what each service and pool was charged."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct

from webhook.commands.simulator import Admission
from webhook.core.admission.decision import Decision, Verdict
from webhook.core.kubernetes.controllers import name_workload
from webhook.core.kubernetes.pod import Pod
from webhook.core.policy.model import Policy, Service
from webhook.core.policy_fields import Per, Window
from webhook.core.quota import Cost, canonicalize
from webhook.core.quota.pod_cost import compute_cost
from webhook.core.quota.teams import find_team
from webhook.core.suggestion.observed_outcomes import OutcomeHistory
from webhook.core.suggestion.observed_use import UseHistory
from webhook.replay.events import (
    OutcomeSeen,
    OutcomesSeen,
    PodAsks,
    PodDeleted,
    PodRefused,
    ReplayEvent,
)
from webhook.replay.limit_prover import ObservedReplay

_SECOND_US = 1_000_000


class RecordedVerdicts(Struct, frozen=True):
    """Verdicts of the past by the uids of Pods, as far as they are known; others are those of the policy in force."""

    are_known: bool = False
    """Whether every Pod was admitted that is not among `denied`."""
    denied: Collection[str] = frozenset()
    admitted: Collection[str] = frozenset()
    unfinished: Collection[str] = frozenset()
    """Pods that others refused before Podgate could charge them."""

    def is_denied(self, decision: Decision) -> bool:
        """Return whether a Pod was denied; `decision` is that of the policy in force."""
        uid = decision.pod_uid
        if self.are_known:
            return uid in self.denied
        return not decision.allowed and uid not in self.admitted


class ObservedService:
    """What was seen of one service, with the charges by namespace if each has its own counters."""

    def __init__(self, service: Service, windows: Iterable[Window]) -> None:
        """Create it; `windows` are those of its pool."""
        self.service = service
        self._limited = _list_limited(service, windows)
        self.requests = self.denied = self.unfinished = 0
        self.charged: defaultdict[str, UseHistory] = defaultdict(UseHistory)
        self.live: defaultdict[str, UseHistory] = defaultdict(UseHistory)
        self.outcomes = OutcomeHistory(service.breaker)

    def choose_counter(self, namespace: str, namespace_labels: Mapping[str, str]) -> str:
        """Return the key of the counters of a namespace: its name, its team, or "" where all share them."""
        quota = self.service.quota
        is_apart = quota is not None and quota.per == Per.NAMESPACE
        return namespace if is_apart else find_team(quota, namespace_labels)

    def compute_cost(self, document: Mapping[str, Any]) -> Cost:
        """Return what a Pod requests, and the other resources that are limited. ValueError: an unreadable quantity."""
        pod = Pod.from_document(document)
        names = {"pods", *self._limited}
        for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
            requests = container.resources.requests if container.resources is not None else None
            names.update(f"requests.{name}" for name in requests or ())
        return {name: amount for name, amount in compute_cost(pod, names).items() if amount}


class _LivePod(Struct, frozen=True):
    history: UseHistory
    workload: str
    cost: Cost


class ObservedUses:
    """Collects the use of each service and pool. `at_us` of events counts from `origin_us`."""

    def __init__(self, policy: Policy, past: ObservedReplay, verdicts: RecordedVerdicts, origin_us: int) -> None:
        self._past = past
        self._verdicts = verdicts
        self._origin_us = origin_us
        self._live: dict[str, _LivePod] = {}
        windows = {pool.name: pool.windows for pool in policy.pools}
        self.services = {
            service.name: ObservedService(service, windows.get(service.pool or "", ())) for service in policy.services
        }
        self.pools: defaultdict[str, UseHistory] = defaultdict(UseHistory)
        self.unowned: Counter[str] = Counter()
        self.requests = 0
        self._number = 0
        self.first_us: int | None = None
        self.last_us = 0
        self.admitted: set[int] = set()
        """The numbers of the requests that were admitted, as `LimitProver` counts them."""

    @property
    def seconds(self) -> float:
        """The time from the first to the last event."""
        return 0 if self.first_us is None else (self.last_us - self.first_us) / _SECOND_US

    @property
    def left_out(self) -> Mapping[str, int]:
        """Reasons for which requests were not observed, with their number."""
        return self._past.left_out

    async def add(self, event: ReplayEvent) -> None:
        """Play one event, and keep what it charges."""
        at_us = self._origin_us + round(event.at * _SECOND_US)
        admission = await self._past.play(event)
        self._number += isinstance(event, PodAsks)
        match event:
            case PodAsks() if admission is not None:
                self._count_time(at_us)
                self._add_request(event, admission, at_us)
            case OutcomeSeen(outcome=fields) if fields.service in self.services:
                self._count_time(at_us)
                history = self.services[fields.service].outcomes
                history.add(at_us, int(fields.ok), int(not fields.ok), round(fields.latency * _SECOND_US))
            case OutcomesSeen(outcomes=fields) if fields.service in self.services:
                self._count_time(at_us)
                history = self.services[fields.service].outcomes
                history.add(at_us, fields.succeeded, fields.failed, round(fields.latency * _SECOND_US))
            case PodDeleted(deleted=uid) | PodRefused(refused=uid):
                self._count_time(at_us)
                self._end(uid, at_us)

    def _count_time(self, at_us: int) -> None:
        self.first_us = at_us if self.first_us is None else self.first_us
        self.last_us = at_us

    def _add_request(self, event: PodAsks, admission: Admission, at_us: int) -> None:
        self.requests += 1
        decision = admission.validated
        if decision.service is None:
            if decision.verdict is Verdict.UNMATCHED:
                self.unowned[event.namespace] += 1
            return
        seen = self.services[decision.service]
        if event.dry_run:
            return
        seen.requests += 1
        if decision.pod_uid in self._verdicts.unfinished:
            seen.unfinished += 1
            return
        if self._verdicts.is_denied(decision):
            seen.denied += 1
            return
        self.admitted.add(self._number)
        counter = seen.choose_counter(event.namespace, decision.inputs.namespace_values)
        self._charge(event, admission.pod, seen, counter, at_us)

    def _charge(
        self, event: PodAsks, stored: Mapping[str, Any], seen: ObservedService, counter: str, at_us: int
    ) -> None:
        try:
            cost = seen.compute_cost(stored)
            former = {} if event.operation == "CREATE" else seen.compute_cost(event.old_pod or stored)
        except ValueError as error:
            self._past.left_out[str(error)] += 1
            return
        if former:
            cost = {name: amount - former.get(name, 0) for name, amount in cost.items() if amount > former.get(name, 0)}
        if not cost:
            return
        workload = name_workload(stored, event.namespace, event.user)
        seen.charged[counter].add(at_us, workload, cost)
        if seen.service.pool is not None:
            self.pools[seen.service.pool].add(at_us, workload, cost)
        if event.uid is not None and event.operation == "CREATE":
            live = seen.live[counter]
            live.add(at_us, workload, cost)
            self._live[event.uid] = _LivePod(live, workload, cost)

    def _end(self, uid: str, at_us: int) -> None:
        pod = self._live.pop(uid, None)
        if pod is not None:
            pod.history.add(at_us, pod.workload, pod.cost, -1)


def _list_limited(service: Service, windows: Iterable[Window]) -> frozenset[str]:
    """Return the resources that a service and its pool limit."""
    quota = service.quota
    own = quota.windows if quota is not None else ()
    standing = quota.standing.hard if quota is not None and quota.standing is not None else {}
    hards = (*(window.hard for window in (*own, *windows)), standing)
    return frozenset(canonicalize(name) for hard in hards for name in hard)
