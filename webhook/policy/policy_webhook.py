"""Policies and overrides on their way into the cluster: judged beside the reviews of Pods, told to the observers."""

import asyncio

from webhook.core.document import Purpose
from webhook.core.policy_admission.overrides_review import review_overrides
from webhook.core.policy_admission.policy_review import DocumentReview, PolicyReview, decode_review
from webhook.ports import Clock, Observer, PolicyCheck, PolicySource


class PolicyWebhook:
    """`/validate-policy`. `clock` is the wall's: people write the ends of overrides by it."""

    def __init__(
        self,
        observer: Observer,
        check: PolicyCheck,
        policies: PolicySource,
        clock: Clock,
        purpose: Purpose = Purpose.SERVE,
    ) -> None:
        self._observer = observer
        self._check = check
        self._policies = policies
        self._clock = clock
        self._purpose = purpose

    async def review(self, body: bytes) -> bytes:
        """Return the answer to one AdmissionReview.

        BadReviewError: the body's fault. CheckFailedError: nothing came of it, and failurePolicy decides.
        """
        asked = decode_review(body, self._purpose)
        found = asked if isinstance(asked, PolicyReview) else await self._review(asked)
        if found.judged:
            self._observer.policy_judged(found.user, found.errors, found.document)
        return found.body

    async def _review(self, asked: DocumentReview) -> PolicyReview:
        if not asked.is_of_overrides:
            return await self._check.review(asked)
        loaded = self._policies.current()
        policy = None if loaded is None else loaded.policy
        # A long one takes a part of a second, which no review should wait for.
        return await asyncio.to_thread(review_overrides, asked, policy, self._clock.now_us())
