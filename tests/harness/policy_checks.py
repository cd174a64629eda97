"""Immediate policy checks, in the test's own process."""

from webhook.core.document import Purpose, load
from webhook.core.document.assembly import Assembly, AssemblyRequest
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_changes.policy_review import DocumentReview, PolicyReview, review_policy


class ImmediateCheck:
    """A `ports.PolicyCheck` that blocks the event loop, as a test may."""

    async def load(self, raw: bytes, purpose: Purpose) -> LoadedPolicy:
        return load(raw, purpose).policy

    async def assemble(self, asked: AssemblyRequest) -> Assembly:
        return asked.assemble()

    async def review(self, request: DocumentReview) -> PolicyReview:
        return review_policy(request)
