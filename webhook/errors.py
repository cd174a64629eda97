"""Exceptions, by cause: the user (exit 2, one line and a remedy), the caller (an HTTP status), and other systems."""

from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from asyncio import Future


class UserError(Exception):
    """An error that the user can correct; `remedy` says how. Shown without a stack trace."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


class NoSuchPageError(UserError):
    """A server answers that it has no such page: the requested thing does not exist there."""


class NoSuchServiceError(UserError):
    """The policy has no service of that name; the command line exits with 4."""


class NoSuchNodeError(UserError):
    """The extender knows no node of that name; the command line exits with 4."""


class StoreFault(StrEnum):
    """Class of a failure of the store, as metrics and traces name it."""

    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    READONLY = "readonly"
    FULL = "full"
    AUTHENTICATION = "authentication"
    FAILOVER = "failover"
    SCRIPT = "script"
    OTHER = "other"


class StoreFailure(NamedTuple):
    """Why the store gave no answer: a text for people and its class, None if no server failed."""

    text: str
    fault: StoreFault | None = None

    def __str__(self) -> str:
        return self.text if self.fault is None else f"{self.fault}: {self.text}"

    @property
    def summary(self) -> str:
        """What failures of one class have in common: their texts differ between calls, and name servers."""
        return self.text if self.fault is None else self.fault.value


class StoreUnavailableError(Exception):
    """The counter store cannot be reached, or did not answer in time; it may have made the change nevertheless."""

    def __init__(self, text: str, fault: StoreFault | None = None) -> None:
        self.failure = StoreFailure(text, fault)
        super().__init__(str(self.failure))


class NoStoreAnswerError(StoreUnavailableError):
    """The store gave no answer. `sent`: the request was sent and may still be carried out; otherwise it never will.

    `charged_us` is resolved by a late answer: the store's time of the charge, 0 if nothing was charged, None if no
    answer will come. Without it, no answer will come.
    """

    def __init__(
        self,
        text: str,
        fault: StoreFault | None = None,
        *,
        sent: bool,
        charged_us: "Future[int | None] | None" = None,
    ) -> None:
        super().__init__(text, fault)
        self.sent = sent
        self.charged_us = charged_us


class StatusError(Exception):
    """Status objects cannot be read or written; `retry_after_seconds` is the shortest delay before a retry."""

    def __init__(self, message: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class StatusNotInstalledError(Exception):
    """The cluster does not have the kind of status object; the message says how to install it."""


class WebhookConfigurationError(Exception):
    """Webhook configurations cannot be rendered, read or written; `retry_after_seconds` as above."""

    def __init__(self, message: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class RolloutError(Exception):
    """The rollout's state or a policy's revision cannot be read or written; `retry_after_seconds` as above."""

    def __init__(self, message: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class SignatureError(Exception):
    """A policy document is not signed as required; the message names object, field and value."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}: {remedy}")
        self.message = message
        self.remedy = remedy


GATE_REASONS = ("forbidden", "admission", "invalid", "changed", "unauthorized", "refused", "unanswered")
"""Reasons for which a gate was not removed: the kinds of answers of the API server, and that there was none.

`admission`: another webhook or a ValidatingAdmissionPolicy; `changed`: others changed the Pod's gates meanwhile.
"""


class GateError(Exception):
    """The gate of a Pod could not be removed, or the Pod not be deleted; a retry may succeed.

    `answer` is the cause in the words of the API server, `reason` one of `GATE_REASONS`. Unless it is "unanswered", the
    API server refused this call, so the call has changed nothing.
    """

    def __init__(self, pod: str, answer: str, reason: str = "unanswered") -> None:
        super().__init__(f"pod {pod}: {answer}")
        self.answer = answer
        self.reason = reason

    @property
    def is_refused(self) -> bool:
        return self.reason != "unanswered"


class LoadSourceError(Exception):
    """A source of the load of nodes did not answer, or not in a form that is understood; a retry may succeed."""


class SchedulerWakeError(Exception):
    """kube-scheduler could not be woken, for a Pod or for all: it tries refused Pods again within five minutes."""


class ControllerAccessError(Exception):
    """A workload controller cannot be read or woken; `retry_after_seconds` as above."""

    def __init__(self, message: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class NoPolicyError(Exception):
    """No valid policy has been loaded."""


class CheckFailedError(Exception):
    """A policy could not be checked, for a reason that is not its own; a retry may succeed."""


class CallRefusedError(Exception):
    """A call is rejected with an HTTP status and a text that reveals nothing but the sender's own data."""

    def __init__(self, status: HTTPStatus, reason: str, text: str, detail: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.text = text
        self.detail = detail or text


class AuthenticationError(Exception):
    """Authentication of a caller failed. `reason` labels a metric, `detail` is for the log; neither is sent to it."""

    def __init__(self, reason: str, detail: str, status: int = 401) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.status = status


class EvictionError(Exception):
    """The API server did not evict a Pod, for another reason than its disruption budget; a retry may succeed."""
