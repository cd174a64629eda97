"""Extender: one call of kube-scheduler, from its request to its answer. It looks up, and never waits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from msgspec import json

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.installation import probe
from webhook.core.kubernetes.controllers import is_like_daemon_pod
from webhook.core.kubernetes.pod import Pod
from webhook.core.lru_cache import LruCache
from webhook.core.policy_fields import Mode
from webhook.core.policy_fields.placement import Placement
from webhook.core.policy_fields.scheduling import Estimate, Numa
from webhook.core.scheduling import extender_api as api
from webhook.core.scheduling.assumed_load import NO_LOAD, LoadEstimates, PodLoad
from webhook.core.scheduling.attempts import record_filter, record_score
from webhook.core.scheduling.candidate_nodes import CANDIDATES_MAX
from webhook.core.scheduling.hot_node_filters import NodeFilters, make_filters
from webhook.core.scheduling.node_selection import PodKind, ServiceRules, filter_nodes, make_pod_kind
from webhook.core.scheduling.node_table import NodeRow
from webhook.core.scheduling.node_verdicts import NodeVerdicts, ServiceVerdicts
from webhook.core.scheduling.scheduler_configuration import DEFAULT_SCHEDULER
from webhook.core.scheduling.scheduling_record import FilterAttempt, PreemptAttempt, ScoreAttempt
from webhook.core.scheduling.scores import NodeScores, choose_best, choose_nearness
from webhook.core.scheduling.topology import Nearness
from webhook.core.scheduling.unschedulable_pods import UnschedulablePods
from webhook.extender.load_table import LoadTable

NOT_LISTED = "podgate: the extender has not listed Nodes and Pods yet"
_NO_SCORES = b"[]"
_PREEMPTORS_MAX = 64
"""Pods of which is kept what was promised to them: the scheduler preempts for one Pod at a time."""
_GROWTH = 1.05
"""By so much the load of others may grow while victims leave: the preemptor passes all the same."""
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
    """The rules of a policy's services, by service; `daemons` are those for Pods of DaemonSets.

    `knows_zones`: NUMA zones were listed, or could not be.
    """

    policy: CompiledPolicy | None
    knows_zones: bool
    services: dict[str, ServiceRules]
    daemons: dict[str, ServiceRules]
    schedulers: frozenset[str]
    """Those that the services with rules name: a service without a name relies on the default scheduler."""

    @classmethod
    def from_policy(cls, policy: CompiledPolicy | None, *, knows_zones: bool = True) -> "PolicyRules":
        services = {} if policy is None else policy.services
        stanzas = [
            (name, service.modes.scheduling, service.scheduling)
            for name, service in services.items()
            if service.scheduling is not None and service.modes.scheduling is not Mode.DISABLED
        ]
        placements = [services[name].placement or Placement() for name, _, _ in stanzas]
        return cls(
            policy,
            knows_zones,
            {stanza[0]: ServiceRules(*stanza, knows_zones=knows_zones) for stanza in stanzas},
            {stanza[0]: ServiceRules.for_daemons(*stanza, knows_zones=knows_zones) for stanza in stanzas},
            frozenset(placement.scheduler_name or DEFAULT_SCHEDULER for placement in placements),
        )


class Extender:
    """Answers `/filter`, `/prioritize` and `/preempt`. Pods of services without `scheduling` pass everywhere."""

    def __init__(
        self,
        policy: Callable[[], CompiledPolicy | None],
        observer: SchedulingObserver,
        now_seconds: Callable[[], float],
        knows_zones: Callable[[], bool] = lambda: True,
    ) -> None:
        """Create it. `knows_zones`: NUMA zones were listed, or could not be; before, Pods that need one are refused."""
        self._policy = policy
        self._knows_zones = knows_zones
        self._observer = observer
        self._rules = PolicyRules.from_policy(None)
        self._now_seconds = now_seconds
        self.table = LoadTable(self.find_estimate, now_seconds, observer.on_bound, self._is_decided)
        self.waiting = UnschedulablePods()
        self._callers: set[str] = set()
        """Schedulers that have asked about Pods of theirs."""
        self._loads = LoadEstimates()
        self._promises: LruCache[str, Mapping[str, tuple[str, ...]]] = LruCache(_PREEMPTORS_MAX)
        """Of preemptors by uid: nodes that pass without their victims, and the uids of these."""
        self._verdicts: LruCache[PodKind, NodeVerdicts] = LruCache(_KINDS_MAX)
        self._by_service: LruCache[tuple[str, bool], ServiceVerdicts] = LruCache(_KINDS_MAX)
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

    @property
    def needs_deviation(self) -> bool:
        """Whether a service's rules weigh the risk of nodes."""
        return any(service.rules.score.risk for service in self._update_rules().services.values())

    def list_services(self) -> Mapping[str, ServiceRules]:
        """Return the rules of the policy in force, by service."""
        return self._update_rules().services

    def find_estimate(self, pod: Pod) -> Estimate:
        """Return how the load of a Pod is expected: by its service's rules, else by the defaults."""
        service = self._find_by_label(pod)
        return Estimate() if service is None else service.rules.estimate

    def find_filters(self, pod: Pod) -> NodeFilters | None:
        """Return the filters of a Pod by the policy in force, None if no node is refused to it."""
        service = self._find_service(pod)
        if service is None or not service.refuses:
            return None
        return make_filters(pod, service.rules, knows_zones=service.knows_zones)

    def filter(self, body: bytes) -> bytes:
        """Answer which nodes pass. BadExtenderRequestError: the body is no such request."""
        args, table = api.decode(body, api.ExtenderArgs), self.table
        asked, service = api.read_node_names(args), self._find_service(args.pod)
        if not self.is_ready:
            if service is not None:
                self.waiting.note_refusal(service.service, args.pod, frozenset(asked))
            return json.encode(api.FilterResult(error=NOT_LISTED))
        if probe.is_extender_probe(args.pod):
            return json.encode(api.FilterResult((), dict.fromkeys(asked, probe.EXTENDER_PROBE_REASON)))
        if service is None:
            return json.encode(api.FilterResult(asked))
        table.withdraw(args.pod)
        self._callers.add(_read_scheduler(args.pod))
        self.waiting.forget(args.pod.metadata.uid)
        candidates, rows, freed = table.compute_candidate_rows(), table.rows, self._compute_freed_rows(args.pod)
        load = self._loads.find_load(args.pod, service.rules.estimate)
        verdicts = self._update_verdicts(args.pod, load, service)
        found = filter_nodes(args.pod, asked, rows, service, verdicts, candidates, freed)
        if candidates or freed:
            rows = {name: freed.get(name) or candidates.get(name) or rows[name] for name in found.refused}
        attempt = record_filter(self._now(), len(asked), found, rows, service.rules)
        self._observer.on_filtered(args.pod, service, attempt)
        if len(found.passed) == 1:  # the scheduler does not ask for the score of a single node
            table.assign(args.pod, load, service.settle_seconds, found.passed[0])
        if not service.refuses:
            return json.encode(api.FilterResult(found.passed))
        if found.refused:
            self.waiting.note_refusal(service.service, args.pod, found.refused)
        refused = {name: refusal.reason for name, refusal in found.refused.items()}
        return json.encode(api.FilterResult(found.passed, refused))

    def prioritize(self, body: bytes) -> bytes:
        """Answer the scores of nodes. BadExtenderRequestError as above."""
        args, table = api.decode(body, api.ExtenderArgs), self.table
        asked, service = api.read_node_names(args), self._find_service(args.pod)
        if service is None or not service.refuses or not self.is_ready:
            return _NO_SCORES
        near = _find_nearness(table, args.pod, service)
        load = self._loads.find_load(args.pod, service.rules.estimate)
        scores = self._update_scores(args.pod, load, service, near).select_scores(asked)
        best = choose_best(scores, CANDIDATES_MAX)
        attempt = record_score(self._now(), load, len(scores), best, table.rows, service.rules, choose_nearness(near))
        self._observer.on_scored(args.pod, service, attempt)
        if best:
            table.assign(args.pod, load, service.settle_seconds, best[0], best[1:])
        return json.encode(scores)

    def preempt(self, body: bytes) -> bytes:
        """Answer on which nodes preemption may help: where the rules pass the Pod once the victims are gone."""
        args, table = api.decode(body, api.PreemptionArgs), self.table
        victims, service = args.victims or {}, self._find_service(args.pod)
        if service is not None and service.refuses and self.is_ready:
            table.withdraw(args.pod)
            refused = filter_nodes(args.pod, tuple(victims), table.rows, service).refused
            promised = {name: victims[name].list_uids() for name in refused}
            freed = table.compute_freed_rows(promised, _GROWTH)
            passed = filter_nodes(args.pod, tuple(victims), table.rows, service, freed=freed).passed
            if kept := {name: promised[name] for name in passed if name in promised}:
                self._promises.keep(args.pod.metadata.uid, kept)
            self._observer.on_preempted(args.pod, service, PreemptAttempt(self._now(), len(victims), len(passed)))
            victims = {name: victims[name] for name in passed}
        return json.encode(api.PreemptionResult(victims))

    def _compute_freed_rows(self, pod: Pod) -> Mapping[str, NodeRow]:
        """Return the rows, for a Pod that preempts others, of nodes as they are without these.

        The scheduler asks again when it sees that the victims are gone; the own watch may show that a little later.
        Only on the node that it has chosen, the nominated one, were they evicted.
        """
        promised, nominated = self._promises.get(pod.metadata.uid), pod.status.nominated_node_name
        if promised is None and not nominated:
            return {}
        victims: dict[str, tuple[str, ...]] = dict.fromkeys(promised or (), ())
        if nominated:
            victims[nominated] = (promised or {}).get(nominated, ())
        freed = self.table.compute_freed_rows(victims)
        return {**freed, **self.table.compute_candidate_rows(freed)}

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._now_seconds(), UTC)

    def _update_rules(self) -> PolicyRules:
        policy, knows_zones = self._policy(), self._knows_zones()
        if policy is not self._rules.policy or knows_zones is not self._rules.knows_zones:
            self._rules = PolicyRules.from_policy(policy, knows_zones=knows_zones)
            self.table.index.keep_nearness(self._rules.services)
            self._verdicts.clear()
            self._by_service.clear()
            self._scores.clear()
        return self._rules

    def _update_verdicts(self, pod: Pod, load: PodLoad, service: ServiceRules) -> NodeVerdicts:
        kind = make_pod_kind(pod, service, load)
        found = self._verdicts.get(kind)
        if found is None:
            found = self._make_verdicts(pod, load, service)
            self._verdicts.keep(kind, found)
        found.update(self.table.node_rows)
        return found

    def _make_verdicts(self, pod: Pod, load: PodLoad, service: ServiceRules) -> NodeVerdicts:
        filters = make_filters(pod, service.rules, load, knows_zones=service.knows_zones)
        if filters.numa is not None or not service.rules.hot.own_demand:
            return NodeVerdicts(filters)
        key = service.service, service.is_for_daemons
        found = self._by_service.get(key)
        if found is not None:
            return found.derive(filters, self.table.node_rows)
        self._by_service.keep(key, ServiceVerdicts(make_filters(pod, service.rules, NO_LOAD)))
        return NodeVerdicts(
            filters
        )  # most services have Pods of one kind, for which those of the service are not needed

    def _update_scores(self, pod: Pod, load: PodLoad, service: ServiceRules, near: Nearness | None) -> NodeScores:
        kind = service.service, pod.metadata.namespace, load
        found = self._scores.get(kind)
        if found is None:
            found = NodeScores(load, service.rules.score, service.rules.risk)
            self._scores.keep(kind, found)
        found.update(self.table.node_rows, near)
        return found

    def _is_decided(self, pod: Pod) -> bool:
        """Return whether a scheduler that asks the extender places a Pod by a service's rules."""
        scheduler = _read_scheduler(pod)
        is_asking = scheduler in self._callers or scheduler in self._update_rules().schedulers
        return is_asking and self._find_service(pod) is not None

    def _find_service(self, pod: Pod) -> ServiceRules | None:
        """Return the rules for a Pod; None if nothing is to decide. Those for Pods of DaemonSets differ."""
        service = self._find_by_label(pod)
        if service is None or not pod.metadata.owner_references or not is_like_daemon_pod(pod):
            return service
        return self._rules.daemons[service.service]

    def _find_by_label(self, pod: Pod) -> ServiceRules | None:
        """Return the rules of the service in a Pod's label, which admission guards."""
        rules = self._update_rules()
        named = None if rules.policy is None else rules.policy.find_by_label(pod)
        return None if named is None else rules.services.get(named.name)


def _read_scheduler(pod: Pod) -> str:
    return pod.spec.scheduler_name or DEFAULT_SCHEDULER


def _find_nearness(table: LoadTable, pod: Pod, service: ServiceRules) -> Nearness | None:
    near = service.rules.near
    return None if near is None else table.index.find_nearness(pod.metadata.namespace, service.service, near)
