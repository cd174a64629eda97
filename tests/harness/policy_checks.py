"""Immediate policy checks, in the test's own process."""

from webhook.core.document import LoadResult, Purpose, load
from webhook.core.policy_admission.policy_review import DocumentReview, PolicyReview, review_policy


class Here:
    """A `ports.PolicyCheck` that holds everybody up. Good enough where nobody else is there."""

    async def load(self, raw: bytes, purpose: Purpose) -> LoadResult:
        return load(raw, purpose)

    async def review(self, asked: DocumentReview) -> PolicyReview:
        return review_policy(asked)
