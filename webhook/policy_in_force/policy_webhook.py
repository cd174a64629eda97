"""Admission webhook for policy and overrides ConfigMaps: validates them and reports the results to the observers."""

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from webhook.core.document import Purpose
from webhook.core.document.configmap import SIGNATURE_KEY, NoDocumentError, read_document
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_changes.overrides_review import review_overrides
from webhook.core.policy_changes.policy_review import DocumentReview, PolicyReview, decode_review, refuse_policy
from webhook.errors import SignatureError
from webhook.policy_in_force.parts_assembler import PartsAssembler
from webhook.ports import Clock, DocumentSignatures, Observer, PolicyCheck


class PolicyWebhook:
    """`/validate-policy`. `policy` returns the policy in force without overrides, which documents are checked against.

    `clock` is the wall clock: the ends of overrides are wall clock times.
    """

    def __init__(
        self,
        observer: Observer,
        check: PolicyCheck,
        policy: Callable[[], LoadedPolicy | None],
        clock: Clock,
        purpose: Purpose = Purpose.SERVE,
        *,
        signatures: DocumentSignatures | None = None,
        assembler: PartsAssembler | None = None,
    ) -> None:
        """Create it. `assembler` has the root and the parts with which a document is checked."""
        self._signatures = signatures
        self._observer = observer
        self._check = check
        self._policy = policy
        self._clock = clock
        self._purpose = purpose
        self._assembler = assembler

    async def review(self, body: bytes) -> bytes:
        """Return the response to one AdmissionReview.

        BadReviewError: the body is invalid. CheckFailedError: the check itself failed, and failurePolicy applies.
        """
        asked = decode_review(body, self._purpose)
        found = asked if isinstance(asked, PolicyReview) else await self._review(asked)
        if found.judged:
            self._observer.on_policy_judged(found.user, found.errors, found.document)
        return found.body

    async def _review(self, asked: DocumentReview) -> PolicyReview:
        if not asked.is_of_overrides:
            # In a thread: a long document would delay reviews.
            obstacle = await asyncio.to_thread(self._find_obstacle, asked)
            if obstacle:
                return refuse_policy(asked, (obstacle,))
            parts = self._assembler
            whole = asked if parts is None else replace(asked, root=parts.root, parts=parts.parts)
            return await self._check.review(whole)
        loaded = self._policy()
        policy = None if loaded is None else loaded.policy
        # In a thread: a long document would delay reviews.
        return await asyncio.to_thread(review_overrides, asked, policy, self._clock.now_us())

    def _find_obstacle(self, asked: DocumentReview) -> str:
        """Return why the signature of a policy is not accepted, "" if it is."""
        if self._signatures is None:
            return ""
        try:
            document = read_document(asked.new)
            self._signatures.verify(document, asked.new.read_signature(), f"data[{SIGNATURE_KEY!r}]")
        except SignatureError as error:
            return str(error)
        except NoDocumentError:
            return ""  # the review of the document says so
        return ""
