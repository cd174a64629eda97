"""Extender in virtual time: called as kube-scheduler calls it, with the load that a source would measure."""

from collections.abc import Mapping, Sequence
from math import hypot

import msgspec
from msgspec.structs import replace

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod, PodStatus
from webhook.core.kubernetes.quantity import Number
from webhook.core.scheduling.assumed_load import PodLoad
from webhook.core.scheduling.extender_api import ExtenderArgs, FilterResult, HostPriority
from webhook.core.scheduling.measured_load import Decay, NodeLoad
from webhook.core.scheduling.node_table import KnownNode
from webhook.core.scheduling.numa import NumaZones
from webhook.extender.extender import Extender, PolicyRules
from webhook.extender.load_refresher import SETTLE_SECONDS, name_sources
from webhook.replay.scheduling.load_history import LoadHistory
from webhook.replay.scheduling.nodes import SimulatedNode

_US = 1_000_000
_LONG_AGO_SECONDS = 1e6
_RUNNING = "Running"
"""Before every window: the load of Pods that started then is measured."""
_SCORES = msgspec.json.Decoder(list[HostPriority])
_FILTERED = msgspec.json.Decoder(FilterResult)


class _NoObserver:
    """Ignores what the extender reports."""

    def on_filtered(self, *_: object) -> None: ...
    def on_scored(self, *_: object) -> None: ...
    def on_preempted(self, *_: object) -> None: ...
    def on_bound(self, *_: object) -> None: ...


class ExtenderInVirtualTime:
    """Times are in seconds from 0. The first source of the policy that measures has a value for each node."""

    def __init__(self, policy: CompiledPolicy, nodes: Sequence[SimulatedNode]) -> None:
        self._now_seconds = self._settle_seconds = 0.0
        self._nodes = nodes
        self._extender = Extender(lambda: policy, _NoObserver(), lambda: self._now_seconds)
        self._table = self._extender.table
        stanza = policy.policy.nodes
        names = [] if stanza is None else [name for name, _ in name_sources(stanza.sources)]
        self._source = names[0] if stanza is not None and stanza.sources[0].requests is None else ""
        self._table.configure(stanza, names)
        self.refresh_seconds = 15.0 if stanza is None else stanza.refresh.us / _US
        self._decay = Decay(1.0, 30.0) if stanza is None else Decay(stanza.decay.factor, stanza.decay.every.us / _US)
        self._window_seconds = 300.0 if stanza is None else stanza.window.us / _US

    async def start(self, running: Sequence[Pod]) -> None:
        """Show it the nodes, and the Pods on them, whose load is measured already."""
        index = self._table.index
        index.on_nodes_listed([KnownNode(simulated.node) for simulated in self._nodes])
        self._now_seconds = -_LONG_AGO_SECONDS
        await index.on_listed([Pod(pod.metadata, pod.spec, PodStatus(_RUNNING)) for pod in running])
        await index.on_list_complete()
        self._now_seconds = 0.0
        self._table.numa.on_numa_listed(
            {simulated.node.name: simulated.zones for simulated in self._nodes if simulated.zones is not None}
        )

    def measure(self, now_seconds: float, histories: Mapping[str, LoadHistory], zones: Mapping[str, NumaZones]) -> None:
        """Enter the load of the nodes that are measured, and new reports of NUMA zones."""
        self._now_seconds = now_seconds
        for node, found in zones.items():
            self._table.numa.on_numa_changed(node, found)
        loads = {}
        for simulated in self._nodes:
            if simulated.load is not None:
                history = histories[simulated.node.name]
                cpu, memory = history.average(now_seconds, self._decay, self._window_seconds)
                measured = replace(
                    simulated.load,
                    source=self._source,
                    measured_at_seconds=now_seconds,
                    cpu_millis=None if simulated.load.cpu_millis is None else cpu,
                    memory_bytes=None if simulated.load.memory_bytes is None else memory,
                )
                if self._extender.needs_deviation:
                    more = history.compute_deviation(now_seconds, self._decay, self._window_seconds)
                    measured = _add_deviation(measured, more)
                loads[simulated.node.name] = measured
        self._table.take_measurements(self._source, loads)
        self._settle_seconds = now_seconds

    def settle(self, now_seconds: float) -> None:
        """Compute what it knows as of now, at most once a second, as it does in real time."""
        self._now_seconds = now_seconds
        if now_seconds >= self._settle_seconds:
            self._table.settle(self._table.list_nodes())
            self._settle_seconds = now_seconds + SETTLE_SECONDS

    def filter(self, pod: Pod, nodes: Sequence[str]) -> FilterResult:
        return _FILTERED.decode(self._extender.filter(_encode_request(pod, nodes)))

    def prioritize(self, pod: Pod, nodes: Sequence[str]) -> dict[str, int]:
        return {
            priority.host: priority.score
            for priority in _SCORES.decode(self._extender.prioritize(_encode_request(pod, nodes)))
        }

    async def show_pod(self, pod: Pod, node: str, *, gone: bool = False) -> None:
        """Show it a Pod on a node, or that the Pod is gone."""
        shown = Pod(pod.metadata, replace(pod.spec, node_name=node), PodStatus(_RUNNING))
        await self._table.index.on_changed(shown, gone=gone)


def _add_deviation(load: NodeLoad, more: PodLoad) -> NodeLoad:
    """Return a load that varies by its recorded deviation, and by that of simulated Pods beside it."""
    cpu = hypot(load.cpu_deviation_millis or 0.0, more.cpu_millis)
    memory = hypot(load.memory_deviation_bytes or 0.0, more.memory_bytes)
    return replace(load, cpu_deviation_millis=cpu, memory_deviation_bytes=memory)


def _encode_request(pod: Pod, nodes: Sequence[str]) -> bytes:
    return msgspec.json.encode(ExtenderArgs(pod, tuple(nodes)))


def drop_assumed_load(policy: CompiledPolicy) -> CompiledPolicy:
    """Return a policy whose services expect no load of Pods that request any."""
    services = []
    for service in policy.policy.services:
        rules = service.scheduling
        if rules is not None:
            estimate = replace(rules.estimate, cpu=Number(0), memory=Number(0))
            rules = replace(rules, estimate=estimate)
        services.append(replace(service, scheduling=rules))
    return CompiledPolicy(replace(policy.loaded, policy=replace(policy.policy, services=tuple(services))))


def has_rules(policy: CompiledPolicy, service: str) -> bool:
    """Return whether the extender acts on Pods of a service."""
    return service in PolicyRules.from_policy(policy).services
