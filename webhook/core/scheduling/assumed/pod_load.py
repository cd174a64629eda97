"""Expected load of a Pod that is not measured yet, from its requests and limits."""

from typing import NamedTuple

from webhook.core.kubernetes import pod_requests
from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_spec.scheduling import Estimate

_MILLI = pod_requests.NANO // 1000
_CPU_MILLIS = 250.0
_MEMORY_BYTES = 200.0 * (1 << 20)
"""Expected of a Pod that asks for nothing."""


class PodLoad(NamedTuple):
    cpu_millis: float
    memory_bytes: float


NO_LOAD = PodLoad(0.0, 0.0)


def expected_load(pod: Pod, estimate: Estimate) -> PodLoad:
    """Return the load expected of a Pod: a factor of the larger of request and limit, a default without either."""
    cpu, memory = _larger(pod, "cpu") / _MILLI, _larger(pod, "memory") / pod_requests.NANO
    return PodLoad(
        cpu * estimate.cpu if cpu else _CPU_MILLIS,
        memory * estimate.memory if memory else _MEMORY_BYTES,
    )


def _larger(pod: Pod, resource: str) -> int:
    """Return the larger of a Pod's request and limit. The API server has checked that they are quantities."""
    return max(pod_requests.total(pod, "requests", resource), pod_requests.total(pod, "limits", resource))
