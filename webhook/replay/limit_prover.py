"""Proof of suggested limits: the Pods of the past, judged by them in virtual time."""

from collections import Counter
from collections.abc import Collection

from webhook.commands.simulator import Admission
from webhook.core.admission.decision import Decision, Verdict
from webhook.core.findings import Code
from webhook.core.suggestion.suggestion import ReplayProof
from webhook.errors import UserError
from webhook.replay.engine import Replay
from webhook.replay.events import PodAsks, PodDeleted, PolicyChange, ReplayEvent, StatusAsked, StoreChange

_LIMITING = frozenset({Code.QUOTA_EXCEEDED, Code.QUEUE_FULL, Code.BREAKER_OPEN, Code.BREAKER_PROBING})


class ObservedReplay:
    """Plays past events through a replay. `has_ends`: the events tell when Pods ended, so live Pods are known.

    Otherwise each Pod is forgotten at once: all of a day would be live at its end.
    """

    def __init__(self, replay: Replay, *, has_ends: bool, has_starts: bool) -> None:
        self._replay = replay
        self._forgets = not (has_ends or has_starts)
        self.left_out: Counter[str] = Counter()
        """Reasons for which requests could not be judged."""

    async def play(self, event: ReplayEvent) -> Admission | None:
        """Apply one event; return the decisions about a request. Changes of policy and store are left out."""
        match event:
            case PolicyChange() | StatusAsked() | StoreChange():
                return None
            case PodAsks():
                return await self._ask(event)
        try:
            await self._replay.play(event)
        except UserError as error:  # an outcome of a service that the policy lacks
            self.left_out[str(error)] += 1
        return None

    async def _ask(self, event: PodAsks) -> Admission | None:
        try:
            admission = await self._replay.admit(event)
        except UserError as error:
            self.left_out[str(error)] += 1
            return None
        if self._forgets and event.operation == "CREATE":
            await self._replay.play(PodDeleted(at=event.at, deleted=admission.validated.pod_uid))
        return admission


class LimitProver:
    """Judges the Pods of the past by a suggested policy. `admitted` are the numbers of the requests that made them.

    Requests that were denied are not repeated: they would take the place of others.
    """

    def __init__(self, past: ObservedReplay, admitted: Collection[int]) -> None:
        self._past = past
        self._admitted = admitted
        self._number = 0
        self._judged: Counter[str] = Counter()
        self._denied: Counter[str] = Counter()
        self._examples: dict[str, str] = {}

    async def add(self, event: ReplayEvent) -> None:
        """Play one event, and count what the limits and the breaker deny."""
        if isinstance(event, PodAsks):
            self._number += 1
            if self._number not in self._admitted:
                return
        admission = await self._past.play(event)
        if not isinstance(event, PodAsks) or admission is None or admission.validated.service is None:
            return
        decision, service = admission.validated, admission.validated.service
        self._judged[service] += 1
        if decision.verdict is Verdict.QUEUE or _is_limited(decision):
            self._denied[service] += 1
            example = f"{event.namespace}/{decision.pod}: {decision.verdict}: {decision.status.message}"
            self._examples.setdefault(service, example)

    def find_proof(self, service: str) -> ReplayProof:
        """Return the result for one service."""
        return ReplayProof(self._judged[service], self._denied[service], self._examples.get(service, ""))


def _is_limited(decision: Decision) -> bool:
    return not decision.allowed and any(finding.code in _LIMITING for finding in decision.findings)
