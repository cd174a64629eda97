"""PromQL of each profile: one series for each node, with the labels that identify the node.

Several jobs or replicas may scrape one exporter. Only what belongs together is added up, and the larger sum counts.
"""

from typing import NamedTuple

from webhook.core.policy_fields.nodes import Profile, PrometheusSource
from webhook.core.scheduling.measured_load import Decay

INSTANCE = "instance"


class ProfileQueries(NamedTuple):
    """Cores, bytes, and the metric whose samples' own time tells how old the data is.

    `rate` of a dead exporter falls for minutes before it ends; the time of its samples is absent at once.
    """

    cpu: str
    memory: str
    freshness: str


class SourceQueries(NamedTuple):
    """All queries of a source; "" for a signal that it does not measure."""

    cpu: str
    memory: str
    freshness: str
    latency: str
    cpu_pressure: str
    memory_pressure: str
    io_pressure: str


_PROFILES = {
    Profile.NODE_EXPORTER: ProfileQueries(
        'max by ({by}) (sum without (cpu, mode) (rate(node_cpu_seconds_total{{mode!~"idle|iowait|steal"}}[{range}])))',
        "max by ({by}) (node_memory_MemTotal_bytes - node_memory_MemAvailable_bytes)",
        "max by ({by}) (timestamp(node_memory_MemAvailable_bytes))",
    ),
    Profile.KUBELET_RESOURCE: ProfileQueries(
        "max by ({by}) (rate(node_cpu_usage_seconds_total[{range}]))",
        "max by ({by}) (node_memory_working_set_bytes)",
        "max by ({by}) (timestamp(node_cpu_usage_seconds_total))",
    ),
    Profile.KUBELET_CADVISOR: ProfileQueries(
        'max by ({by}) (sum without (cpu) (rate(container_cpu_usage_seconds_total{{id="/"}}[{range}])))',
        'max by ({by}) (container_memory_working_set_bytes{{id="/"}})',
        'max by ({by}) (timestamp(container_cpu_usage_seconds_total{{id="/"}}))',
    ),
}
_PRESSURES = {
    Profile.NODE_EXPORTER: (
        "max by ({by}) (rate(node_pressure_cpu_waiting_seconds_total[{range}]))",
        "max by ({by}) (rate(node_pressure_memory_stalled_seconds_total[{range}]))",
        "max by ({by}) (rate(node_pressure_io_stalled_seconds_total[{range}]))",
    ),
    Profile.KUBELET_CADVISOR: tuple(
        f'max by ({{by}}) (rate(container_pressure_{name}_seconds_total{{{{id="/"}}}}[{{range}}]))'
        for name in ("cpu_waiting", "memory_stalled", "io_stalled")
    ),
}


def build_queries(source: PrometheusSource, decay: Decay) -> SourceQueries:
    """Return the queries of a source: its own, else those of its profile. Rates are over two steps of the decay."""
    own = source.queries
    names = {"by": f"{source.node_label}, {INSTANCE}", "range": f"{round(2000 * decay.every_seconds)}ms"}
    profile = _PROFILES[source.profile]
    cpu, memory, io = _PRESSURES.get(source.profile, ("", "", ""))
    return SourceQueries(
        own.cpu or profile.cpu.format(**names),
        own.memory or profile.memory.format(**names),
        profile.freshness.format(**names),
        own.latency or "",
        own.cpu_pressure or cpu.format(**names),
        own.memory_pressure or memory.format(**names),
        own.io_pressure or io.format(**names),
    )
