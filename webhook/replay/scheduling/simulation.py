"""Simulation of schedulers on the same nodes and Pods, which are tried when created, and again while they wait."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.core.scheduling.assumed_load import NO_LOAD, PodLoad
from webhook.core.scheduling.scores import SCORE_MAX
from webhook.replay.environment import ReplayEnvironment
from webhook.replay.scheduling.default_scheduler import DefaultScheduler
from webhook.replay.scheduling.extender import ExtenderInVirtualTime, drop_assumed_load
from webhook.replay.scheduling.kubelet_zones import KubeletZones
from webhook.replay.scheduling.load_history import LoadHistory
from webhook.replay.scheduling.model_gaps import NotModelled, list_gaps
from webhook.replay.scheduling.nodes import SimulatedNode
from webhook.replay.scheduling.pods import ScheduledPod
from webhook.replay.scheduling.simulated_shares import SimulatedShares, VariantOutcome

RETRY_SECONDS = 5.0
"""Interval at which waiting Pods are tried again."""


class NodeOutcome(Struct, frozen=True, rename="camel"):
    """One node: the Pods on it in the end, and used shares of the allocatable amounts."""

    name: str
    pods: int
    cpu_before: float
    cpu_peak: float
    cpu_end: float
    memory_before: float
    memory_peak: float
    memory_end: float


class SchedulerOutcome(Struct, frozen=True, rename="camel"):
    """What one scheduler does. `refused`: how many Pods had to wait, by each reason that they had.

    `failed`: Pods that the kubelet of their node refused, since no single NUMA zone holds them.
    """

    placed: int
    waited: int
    waiting: int
    failed: int
    median_wait_seconds: float
    longest_wait_seconds: float
    refused: dict[str, int]
    nodes: tuple[NodeOutcome, ...]
    variants: tuple[VariantOutcome, ...] = ()


class SchedulerSimulation:
    """One run over virtual time."""

    def __init__(
        self,
        nodes: Sequence[SimulatedNode],
        running: Sequence[Pod],
        extender: ExtenderInVirtualTime | None,
        weight: int,
        shares: SimulatedShares | None = None,
    ) -> None:
        """Create it. Without an extender, kube-scheduler's own rules decide; `weight` is that of its scores.

        `shares`: those of the policy, None without any.
        """
        self._shares = shares
        self._nodes = nodes
        self._extender = extender
        self._weight = weight * SCORE_MAX
        self._running = running
        self._scheduler = DefaultScheduler(nodes)
        for pod in running:
            self._scheduler.bind(pod, pod.spec.node_name or "")
        self._zones = KubeletZones(nodes)
        self._failed = 0
        self._histories = {simulated.node.name: LoadHistory(_read_load(simulated)) for simulated in nodes}
        self._waiting: dict[str, ScheduledPod] = {}
        self._placed: dict[str, str] = {}
        self._waits: list[float] = []
        self._reasons: dict[str, set[str]] = {}

    async def run(self, pods: Sequence[ScheduledPod], until_seconds: float) -> SchedulerOutcome:
        """Run until the end, and return what has happened. Pods are in the order of their creation."""
        extender = self._extender
        ends = sorted((scheduled for scheduled in pods if scheduled.ends_seconds is not None), key=_get_end_seconds)
        created = ended = 0
        now_seconds, measure_seconds, retry_seconds = 0.0, 0.0, 0.0
        if extender is not None:
            await extender.start(self._running)
        while now_seconds <= until_seconds:
            while ended < len(ends) and _get_end_seconds(ends[ended]) <= now_seconds:
                await self._end(ends[ended], now_seconds)
                ended += 1
            if extender is not None and measure_seconds <= now_seconds:
                extender.measure(now_seconds, self._histories, self._zones.take_reports())
                measure_seconds = now_seconds + extender.refresh_seconds
            tried = await self._take_evicted(now_seconds)
            tried += list(self._waiting.values()) if retry_seconds <= now_seconds else []
            if tried:
                retry_seconds = now_seconds + RETRY_SECONDS
            while created < len(pods) and pods[created].at_seconds <= now_seconds:
                tried.append(pods[created])
                created += 1
            await self._try(tried, now_seconds)
            following = [pods[created].at_seconds] if created < len(pods) else []
            following += [_get_end_seconds(ends[ended])] if ended < len(ends) else []
            following += [measure_seconds] if extender is not None else []
            following += [_compute_next_retry(retry_seconds, now_seconds)] if self._waiting else []
            following += [max(self._shares.next_seconds, now_seconds)] if self._shares is not None else []
            now_seconds = min(following, default=until_seconds + 1)
        return self._make_outcome()

    async def _try(self, pods: Sequence[ScheduledPod], now_seconds: float) -> None:
        if pods and self._extender is not None:
            self._extender.settle(now_seconds)
        for scheduled in pods:
            pod = scheduled.pod if self._shares is None else await self._shares.find_pod(scheduled)
            node = scheduled.node or self._choose_node(pod, is_foreign=scheduled.is_foreign)
            if node is not None:
                await self._bind(replace(scheduled, pod=pod), node, now_seconds)
                continue
            self._waiting[pod.metadata.uid] = scheduled
            if self._shares is not None:
                self._shares.wait(pod.metadata.uid, now_seconds)

    async def _take_evicted(self, now_seconds: float) -> list[ScheduledPod]:
        """Return the Pods whose variant has opened, to be tried as Pods of another one."""
        evicted = () if self._shares is None else await self._shares.advance(now_seconds)
        return [self._waiting.pop(uid) for uid in evicted]

    def _choose_node(self, pod: Pod, *, is_foreign: bool) -> str | None:
        """Return the best node for a Pod, None if it has to wait."""
        passed: Sequence[str]
        passed, kept_off = self._scheduler.find_feasible(pod)
        reasons = self._reasons.setdefault(pod.metadata.uid, set())
        if not passed:
            reasons |= kept_off
            return None
        preferred: Mapping[str, int] = {}
        if self._extender is not None and not is_foreign:
            found = self._extender.filter(pod, passed)
            passed = found.node_names
            if not passed:
                reasons.update(found.failed_and_unresolvable_nodes.values())
                return None
            preferred = self._extender.prioritize(pod, passed) if len(passed) > 1 else {}
        scores = self._scheduler.compute_scores(pod, passed)
        return min(passed, key=lambda name: (-scores[name] - self._weight * preferred.get(name, 0), name))

    async def _bind(self, scheduled: ScheduledPod, node: str, now_seconds: float) -> None:
        uid = scheduled.pod.metadata.uid
        if not self._zones.admits(scheduled.pod, node):
            self._failed += 1
            self._waiting.pop(uid, None)
            return
        self._scheduler.bind(scheduled.pod, node)
        self._histories[node].add(now_seconds, scheduled.usage, 1)
        self._placed[uid] = node
        self._waits.append(now_seconds - scheduled.at_seconds)
        self._waiting.pop(uid, None)
        if self._shares is not None:
            await self._shares.bind(uid)
        if self._extender is not None:
            await self._extender.show_pod(scheduled.pod, node)

    async def _end(self, scheduled: ScheduledPod, now_seconds: float) -> None:
        uid = scheduled.pod.metadata.uid
        self._waiting.pop(uid, None)
        if self._shares is not None:
            await self._shares.end(uid)
        node = self._placed.pop(uid, None)
        if node is not None:
            self._scheduler.bind(scheduled.pod, node, -1)
            self._zones.release(uid, node)
            self._histories[node].add(now_seconds, scheduled.usage, -1)
            if self._extender is not None:
                await self._extender.show_pod(scheduled.pod, node, gone=True)

    def _make_outcome(self) -> SchedulerOutcome:
        waits = [wait for wait in self._waits if wait > 0]
        on_nodes = Counter(self._placed.values())
        reasons = Counter(reason for found in self._reasons.values() for reason in found)
        return SchedulerOutcome(
            len(self._waits),
            len(waits),
            len(self._waiting),
            self._failed,
            median(waits) if waits else 0.0,
            max(waits, default=0.0),
            dict(sorted(reasons.items())),
            tuple(
                _make_node_outcome(simulated, on_nodes[simulated.node.name], self._histories[simulated.node.name])
                for simulated in self._nodes
            ),
            variants=() if self._shares is None else self._shares.list_outcomes(),
        )


def _compute_next_retry(retry_seconds: float, now_seconds: float) -> float:
    return retry_seconds if retry_seconds > now_seconds else now_seconds + RETRY_SECONDS


def _get_end_seconds(scheduled: ScheduledPod) -> float:
    return scheduled.at_seconds if scheduled.ends_seconds is None else scheduled.ends_seconds


def _read_load(simulated: SimulatedNode) -> PodLoad:
    load = simulated.load
    return NO_LOAD if load is None else PodLoad(load.cpu_millis or 0.0, load.memory_bytes or 0.0)


def _make_node_outcome(simulated: SimulatedNode, pods: int, history: LoadHistory) -> NodeOutcome:
    before, cpu, memory = _read_load(simulated), simulated.node.cpu_millis, simulated.node.memory_bytes
    loads = (before, history.peak, history.current)
    return NodeOutcome(
        simulated.node.name,
        pods,
        *(_compute_share(load.cpu_millis, cpu) for load in loads),
        *(_compute_share(load.memory_bytes, memory) for load in loads),
    )


def _compute_share(used: float, allocatable: float) -> float:
    return round(used / allocatable, 4) if allocatable else 0.0


class SchedulerComparison(Struct, frozen=True, rename="camel"):
    """The outcome of each scheduler, over the same virtual time."""

    pods: int
    duration_seconds: float
    default: SchedulerOutcome
    """The model of kube-scheduler alone."""
    without_assumed_load: SchedulerOutcome
    """With an extender that knows only what is measured: many Pods at once go to the same cool node."""
    extender: SchedulerOutcome
    not_modelled: tuple[NotModelled, ...] = ()


async def compare_schedulers(
    policy: CompiledPolicy,
    nodes: Sequence[SimulatedNode],
    running: Sequence[Pod],
    pods: Sequence[ScheduledPod],
    after_seconds: float,
    weight: int,
    *,
    environment: Callable[[], ReplayEnvironment] | None = None,
) -> SchedulerComparison:
    """Return the outcomes, until `after_seconds` after the last Pod was created or has ended.

    `environment` returns a new one with the policy; without it no Pods are divided over variants.
    """
    last_seconds = max(max(scheduled.at_seconds, scheduled.ends_seconds or 0.0) for scheduled in pods)
    until_seconds = last_seconds + after_seconds
    known = {None, *(simulated.node.name for simulated in nodes)}
    here = [scheduled for scheduled in pods if scheduled.node in known]

    async def run(rules: CompiledPolicy | None) -> SchedulerOutcome:
        extender = None if rules is None else ExtenderInVirtualTime(rules, nodes)
        shares = SimulatedShares(environment()) if environment is not None and policy.shares else None
        return await SchedulerSimulation(nodes, running, extender, weight, shares).run(here, until_seconds)

    return SchedulerComparison(
        *(len(here), until_seconds),
        *(await run(None), await run(drop_assumed_load(policy)), await run(policy)),
        list_gaps(policy, nodes, running, pods),
    )
