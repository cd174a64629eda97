"""Policies on their way into the cluster: each is judged beside the reviews of Pods, and told to the observers."""

import asyncio

from webhook.core.policy_review import judge
from webhook.ports import Observer


class PolicyReviewer:
    """`/validate-policy`."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    async def review(self, body: bytes) -> bytes:
        """Return the answer to one AdmissionReview; BadReviewError: the body's fault."""
        # Checking a large document takes a second: the loop goes on answering meanwhile.
        found = await asyncio.to_thread(judge, body)
        if found.judged:
            self._observer.policy_judged(found.user, found.errors)
        return found.body
