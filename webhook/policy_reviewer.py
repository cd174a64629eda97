"""Policies on their way into the cluster: each is judged beside the reviews of Pods, and told to the observers."""

from webhook.core.document import Purpose
from webhook.core.policy_review import PolicyReview, question
from webhook.ports import Observer, PolicyCheck


class PolicyReviewer:
    """`/validate-policy`."""

    def __init__(self, observer: Observer, check: PolicyCheck, purpose: Purpose = Purpose.SERVE) -> None:
        self._observer = observer
        self._check = check
        self._purpose = purpose

    async def review(self, body: bytes) -> bytes:
        """Return the answer to one AdmissionReview.

        BadReviewError: the body's fault. CheckFailedError: nothing came of it, and failurePolicy decides.
        """
        asked = question(body, self._purpose)
        found = asked if isinstance(asked, PolicyReview) else await self._check.weigh(asked)
        if found.judged:
            self._observer.policy_judged(found.user, found.errors)
        return found.body
