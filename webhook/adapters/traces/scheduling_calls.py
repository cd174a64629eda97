"""Calls of kube-scheduler about traced Pods: what the extender decided, and how long that took."""

from collections.abc import Callable

from msgspec import Struct

from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_fields import Mode
from webhook.core.scheduling.node_selection import ServiceRules
from webhook.core.scheduling.scheduling_record import FilterAttempt, PreemptAttempt, ScoreAttempt

Attempt = FilterAttempt | ScoreAttempt | PreemptAttempt


class SchedulingCall(Struct, frozen=True):
    """An answered call. Times are nanoseconds since the Unix epoch."""

    verb: str
    service: str
    mode: Mode
    namespace: str
    pod: str
    uid: str
    attempt: Attempt
    started_ns: int
    ended_ns: int


class SchedulingCalls:
    """Receives each decision, and then the duration of its call. `is_drawn` selects Pods by their uid."""

    def __init__(
        self, is_drawn: Callable[[str], bool], report: Callable[[SchedulingCall], None], now_ns: Callable[[], int]
    ) -> None:
        self._is_drawn = is_drawn
        self._report = report
        self._now_ns = now_ns
        self._decided: tuple[Pod, ServiceRules, Attempt] | None = None
        """Decision of the call that is being answered; no other call runs in between."""

    def on_decided(self, pod: Pod, service: ServiceRules, attempt: Attempt) -> None:
        self._decided = (pod, service, attempt) if self._is_drawn(pod.metadata.uid) else None

    def on_answered(self, verb: str, duration_ns: int) -> None:
        """Report the call, if it has a decision about a traced Pod."""
        if self._decided is None:
            return
        (pod, service, attempt), self._decided = self._decided, None
        found, ended_ns = pod.metadata, self._now_ns()
        whose = service.service, service.mode, found.namespace, found.name, found.uid
        self._report(SchedulingCall(verb, *whose, attempt, ended_ns - duration_ns, ended_ns))
