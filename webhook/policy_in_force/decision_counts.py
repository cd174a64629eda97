"""Counts of decisions by policy, for all replicas together, while a candidate is judged beside the policy in force."""

import asyncio
from collections import Counter, defaultdict

from webhook.core.admission.decision import Half, Verdict
from webhook.core.rollout.counting import DENIALS, REVIEWS
from webhook.errors import StoreUnavailableError
from webhook.ports import PartialObserver, Review, RolloutCounts

_SEND_SECONDS = 1.0
_NAMES_MAX = 10_000
"""Counts of one policy that wait while the store does not answer; further ones are dropped."""


class DecisionCounts(PartialObserver):
    """An observer of reviews, which adds them up here and sends them about once a second."""

    def __init__(self, shared: RolloutCounts) -> None:
        self._shared = shared
        self._waiting: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.error = ""
        """Why the last counts could not be sent; "" if they were."""

    def on_reviewed(self, review: Review) -> None:
        decision = review.decision
        call = decision.call
        if decision.half is not Half.VALIDATE or call.operation != "CREATE" or call.dry_run or decision.workload:
            return
        self.add(decision.policy_hash, REVIEWS)
        if decision.verdict is Verdict.DENY:
            self.add(decision.policy_hash, DENIALS)

    def add(self, policy_hash: str, name: str) -> None:
        """Count one of anything."""
        counts = self._waiting[policy_hash]
        if name in counts or len(counts) < _NAMES_MAX:
            counts[name] += 1

    async def run(self) -> None:
        """Send counts until cancelled."""
        while True:
            await asyncio.sleep(_SEND_SECONDS)
            await self.send()

    async def send(self) -> None:
        """Send what waits. What fails is sent again with what follows."""
        for policy_hash in list(self._waiting):
            sent = self._waiting.pop(policy_hash)
            try:
                await self._shared.add(policy_hash, sent)
            except StoreUnavailableError as error:
                self.error = str(error)
                for name, count in sent.items():
                    self._waiting[policy_hash][name] += count
                return
        self.error = ""
