"""Classes of Redis errors: a fixed word, and the error's own text, as in `full: command not allowed when ...`."""

import re
from collections.abc import Awaitable
from typing import TypeVar

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    BusyLoadingError,
    ClusterDownError,
    ClusterError,
    ExternalAuthProviderError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from webhook.errors import StoreUnavailableError

_T = TypeVar("_T")

TIMEOUT = "timeout"
UNREACHABLE = "unreachable"
READONLY = "readonly"
FULL = "full"
AUTHENTICATION = "authentication"
FAILOVER = "failover"
SCRIPT = "script"
OTHER = "other"

# In this order: the first matching class gives the word, and the library's classes derive from each other.
_BY_CLASS: tuple[tuple[str, tuple[type[Exception], ...]], ...] = (
    (
        AUTHENTICATION,
        (AuthenticationError, AuthenticationWrongNumberOfArgsError, NoPermissionError, ExternalAuthProviderError),
    ),
    # Redirections, too: the slot is on another node, and a URL of one server does not follow.
    (FAILOVER, (BusyLoadingError, MasterDownError, ClusterDownError, ClusterError, TryAgainError, AskError)),
    (READONLY, (ReadOnlyError,)),
    (FULL, (OutOfMemoryError,)),
    (TIMEOUT, (RedisTimeoutError, TimeoutError)),
    (UNREACHABLE, (RedisConnectionError, OSError)),
)
# Errors of one command in a script that concern the whole server; any other is that operation's own.
_BY_CODE = {
    "READONLY": READONLY,
    "OOM": FULL,
    "NOPERM": AUTHENTICATION,
    "LOADING": FAILOVER,
    "MASTERDOWN": FAILOVER,
    "CLUSTERDOWN": FAILOVER,
    "NOREPLICAS": READONLY,
    "MISCONF": READONLY,
    "BUSY": TIMEOUT,
}
# A command in a script that the user may not run has no code: Redis 6.2 says the one, its successors the other. It may
# concern this operation alone, as the commands of queues do.
_FORBIDDEN = re.compile("The user executing the script can't|ACL failure in script")
_IN_SCRIPT = "@user_script"


def word(reason: str) -> str:
    """Return the word that a reason begins with."""
    return reason.partition(":")[0]


def is_of_the_store(error: Exception) -> bool:
    """Return whether the store failed; any other error is a defect in Podgate, which may affect only this call."""
    return isinstance(error, RedisError | OSError | TimeoutError)


async def translated(call: Awaitable[_T]) -> _T:
    """Await a call of a transport; its errors become StoreUnavailableError."""
    try:
        return await call
    except (RedisError, OSError, TimeoutError) as error:
        raise StoreUnavailableError(described(error)) from error


def described(error: Exception) -> str:
    """Return the word and the text of an error that ended a whole call."""
    text = str(error) or type(error).__name__
    for name, classes in _BY_CLASS:
        if isinstance(error, classes):
            return f"{name}: {text}"
    # The library knows no class for these.
    return f"{_by_code(text) or _by_script(text) or OTHER}: {text}"


def described_result(text: str) -> tuple[bool, str]:
    """Return whether one operation's error is the whole server's, and its word and text."""
    found = _by_code(text)
    return found is not None, f"{found or _by_script(text) or SCRIPT}: {text}"


def _by_script(text: str) -> str | None:
    """Return the word of an error that the script met."""
    if _FORBIDDEN.search(text):
        return AUTHENTICATION
    return SCRIPT if _IN_SCRIPT in text else None


def _by_code(text: str) -> str | None:
    # Redis 6.2 says `@user_script: 12: -OOM command not allowed ...`, its successors `OOM command not allowed ...`.
    words = (part.lstrip("-") for part in text.split()[:4])
    return next((_BY_CODE[part] for part in words if part in _BY_CODE), None)
