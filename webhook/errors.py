"""Errors, split by blame: the user's (exit 2, one line and a remedy), the caller's (an HTTP status), others'."""

from http import HTTPStatus


class UserError(Exception):
    """The user can mend it. `remedy` says how; neither is ever shown with a stack trace."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


class NoSuchServiceError(UserError):
    """The policy has no service of that name; the command line exits with 4."""


class StoreUnavailableError(Exception):
    """The counters cannot be asked, or did not answer in time; says why. Whether they were changed is not known."""


class ServiceStatusError(Exception):
    """ServiceStatus objects cannot be read or written; says why, and how long to wait at least."""

    def __init__(self, message: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class ServiceStatusNotInstalledError(Exception):
    """The cluster has no ServiceStatus kind; says how to install it."""


class NoPolicyError(Exception):
    """There is no good policy to judge by."""


class CheckFailedError(Exception):
    """A policy could not be checked, good or bad; says why. It can be tried again."""


class CallRefusedError(Exception):
    """A call ends here, with an HTTP status and a text that tells its sender nothing that it did not send itself."""

    def __init__(self, status: HTTPStatus, reason: str, text: str, detail: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.text = text
        self.detail = detail or text


class AuthenticationError(Exception):
    """A caller is not who it must be. `reason` labels a metric, `detail` is for our log; the caller hears neither."""

    def __init__(self, reason: str, detail: str, status: int = 401) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.status = status
