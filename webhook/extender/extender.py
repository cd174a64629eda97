"""Extender: one call of kube-scheduler, from its request to its answer. It looks up, and never waits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from msgspec import json

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.installation import probe
from webhook.core.kubernetes.pod import Pod
from webhook.core.lru_cache import LruCache
from webhook.core.policy_fields import Mode
from webhook.core.policy_fields.scheduling import Estimate, Numa
from webhook.core.scheduling import extender_api as api
from webhook.core.scheduling.assumed_load import PodLoad, estimate_load
from webhook.core.scheduling.attempts import UnschedulablePods, record_filter, record_score
from webhook.core.scheduling.candidate_nodes import CANDIDATES_MAX
from webhook.core.scheduling.hot_node_filters import NodeVerdicts, make_filters
from webhook.core.scheduling.node_selection import ServiceRules, filter_nodes, make_pod_kind
from webhook.core.scheduling.scheduling_record import FilterAttempt, PreemptAttempt, ScoreAttempt
from webhook.core.scheduling.scores import NodeScores, choose_best, choose_nearness
from webhook.core.scheduling.topology import Nearness
from webhook.extender.load_table import LoadTable

NOT_LISTED = "podgate: the extender has not listed Nodes and Pods yet"
_NO_SCORES = b"[]"
_KINDS_MAX = 16
"""Kinds of Pods of which verdicts and scores are kept: it bounds memory, which grows with the nodes."""


class SchedulingObserver(Protocol):
    """Observer of the extender's decisions."""

    def on_filtered(self, pod: Pod, service: ServiceRules, attempt: FilterAttempt) -> None: ...
    def on_scored(self, pod: Pod, service: ServiceRules, attempt: ScoreAttempt) -> None: ...
    def on_preempted(self, pod: Pod, service: ServiceRules, attempt: PreemptAttempt) -> None: ...
    def on_bound(self, uid: str, node: str, at_seconds: float) -> None:
        """Receive that the watch shows a Pod on a node, since then in seconds since the Unix epoch."""
        ...


@dataclass(frozen=True, slots=True)
class PolicyRules:
    """The rules of a policy's services, by service."""

    policy: CompiledPolicy | None
    services: dict[str, ServiceRules]

    @classmethod
    def from_policy(cls, policy: CompiledPolicy | None) -> "PolicyRules":
        services = {} if policy is None else policy.services
        found = {
            name: ServiceRules(name, service.modes.scheduling, service.scheduling)
            for name, service in services.items()
            if service.scheduling is not None and service.modes.scheduling is not Mode.DISABLED
        }
        return cls(policy, found)


class Extender:
    """Answers `/filter`, `/prioritize` and `/preempt`. Pods of services without `scheduling` pass everywhere."""

    def __init__(
        self,
        policy: Callable[[], CompiledPolicy | None],
        observer: SchedulingObserver,
        now_seconds: Callable[[], float],
    ) -> None:
        self._policy = policy
        self._observer = observer
        self._rules = PolicyRules.from_policy(None)
        self._now_seconds = now_seconds
        self.table = LoadTable(self.find_estimate, now_seconds, observer.on_bound)
        self.refused = UnschedulablePods()
        self._verdicts: LruCache[bytes, NodeVerdicts] = LruCache(_KINDS_MAX)
        self._scores: LruCache[tuple[str, str, PodLoad], NodeScores] = LruCache(_KINDS_MAX)
        """By service, namespace and expected load."""

    @property
    def is_ready(self) -> bool:
        """Whether Nodes and Pods are listed."""
        return self.table.index.is_complete

    @property
    def needs_numa(self) -> bool:
        """Whether a service's rules ask for NUMA zones."""
        return any(service.rules.numa is Numa.REQUIRED for service in self._update_rules().services.values())

    def list_services(self) -> Mapping[str, ServiceRules]:
        """Return the rules of the policy in force, by service."""
        return self._update_rules().services

    def find_estimate(self, pod: Pod) -> Estimate:
        """Return how the load of a Pod is expected: by its service's rules, else by the defaults."""
        service = self._find_service(pod)
        return Estimate() if service is None else service.rules.estimate

    def filter(self, body: bytes) -> bytes:
        """Answer which nodes pass. BadExtenderRequestError: the body is no such request."""
        args, table = api.decode(body, api.ExtenderArgs), self.table
        asked = api.read_node_names(args)
        if not self.is_ready:
            return json.encode(api.FilterResult(error=NOT_LISTED))
        if probe.is_extender_probe(args.pod):
            return json.encode(api.FilterResult((), dict.fromkeys(asked, probe.EXTENDER_PROBE_REASON)))
        service = self._find_service(args.pod)
        if service is None:
            return json.encode(api.FilterResult(asked))
        table.withdraw(args.pod)
        candidates, rows = table.compute_candidate_rows(), table.rows
        found = filter_nodes(args.pod, asked, rows, service, self._update_verdicts(args.pod, service), candidates)
        judged = {name: candidates.get(name) or rows[name] for name in found.refused} if candidates else rows
        attempt = record_filter(self._now(), len(asked), found, judged, service.rules)
        self._observer.on_filtered(args.pod, service, attempt)
        if len(found.passed) == 1:  # the scheduler does not ask for the score of a single node
            load = estimate_load(args.pod, service.rules.estimate)
            table.assign(args.pod, load, service.settle_seconds, found.passed[0])
        if not service.refuses:
            return json.encode(api.FilterResult(found.passed))
        if found.refused and not found.passed:
            kind = service.service, estimate_load(args.pod, service.rules.estimate)
            self.refused.note_refusal(kind, found.filters, frozenset(found.refused))
        refused = {name: refusal.reason for name, refusal in found.refused.items()}
        return json.encode(api.FilterResult(found.passed, refused))

    def prioritize(self, body: bytes) -> bytes:
        """Answer the scores of nodes. BadExtenderRequestError as above."""
        args, table = api.decode(body, api.ExtenderArgs), self.table
        asked, service = api.read_node_names(args), self._find_service(args.pod)
        if service is None or not service.refuses or not self.is_ready:
            return _NO_SCORES
        near, load = _find_nearness(table, args.pod, service), estimate_load(args.pod, service.rules.estimate)
        scores = self._update_scores(args.pod, load, service, near).select_scores(asked)
        best = choose_best(scores, CANDIDATES_MAX)
        attempt = record_score(self._now(), load, len(scores), best, table.rows, service.rules, choose_nearness(near))
        self._observer.on_scored(args.pod, service, attempt)
        if best:
            table.assign(args.pod, load, service.settle_seconds, best[0], best[1:])
        return json.encode(scores)

    def preempt(self, body: bytes) -> bytes:
        """Answer on which nodes preemption may help: not where the rules would refuse the Pod afterwards."""
        args, table = api.decode(body, api.PreemptionArgs), self.table
        victims, service = args.victims or {}, self._find_service(args.pod)
        if service is not None and service.refuses and self.is_ready:
            passed = filter_nodes(args.pod, tuple(victims), table.rows, service).passed
            self._observer.on_preempted(args.pod, service, PreemptAttempt(self._now(), len(victims), len(passed)))
            victims = {name: victims[name] for name in passed}
        return json.encode(api.PreemptionResult(victims))

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._now_seconds(), UTC)

    def _update_rules(self) -> PolicyRules:
        policy = self._policy()
        if policy is not self._rules.policy:
            self._rules = PolicyRules.from_policy(policy)
            self.table.index.keep_nearness(self._rules.services)
            self._verdicts.clear()
            self._scores.clear()
        return self._rules

    def _update_verdicts(self, pod: Pod, service: ServiceRules) -> NodeVerdicts:
        kind = make_pod_kind(pod, service)
        found = self._verdicts.get(kind)
        if found is None:
            found = NodeVerdicts(make_filters(pod, service.rules))
            self._verdicts.keep(kind, found)
        found.update(self.table.node_rows)
        return found

    def _update_scores(self, pod: Pod, load: PodLoad, service: ServiceRules, near: Nearness | None) -> NodeScores:
        kind = service.service, pod.metadata.namespace, load
        found = self._scores.get(kind)
        if found is None:
            found = NodeScores(load, service.rules.score)
            self._scores.keep(kind, found)
        found.update(self.table.node_rows, near)
        return found

    def _find_service(self, pod: Pod) -> ServiceRules | None:
        """Return the rules of the service in a Pod's label, which admission guards; None if nothing is to decide."""
        rules = self._update_rules()
        named = None if rules.policy is None else rules.policy.find_by_label(pod)
        return None if named is None else rules.services.get(named.name)


def _find_nearness(table: LoadTable, pod: Pod, service: ServiceRules) -> Nearness | None:
    near = service.rules.near
    return None if near is None else table.index.find_nearness(pod.metadata.namespace, service.service, near)
