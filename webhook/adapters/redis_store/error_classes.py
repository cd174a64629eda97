"""Classes of Redis errors: a fixed word, and the error's own text, as in `full: command not allowed when ...`."""

from collections.abc import Awaitable
from typing import TypeVar

from redis.exceptions import (
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    BusyLoadingError,
    ClusterDownError,
    ClusterError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
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
    (AUTHENTICATION, (AuthenticationError, AuthenticationWrongNumberOfArgsError, NoPermissionError)),
    (FAILOVER, (BusyLoadingError, MasterDownError, ClusterDownError, ClusterError)),
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
}


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
    return f"{_by_code(text) or OTHER}: {text}"


def described_result(text: str) -> tuple[bool, str]:
    """Return whether one operation's error is the whole server's, and its word and text."""
    found = _by_code(text)
    return found is not None, f"{found or SCRIPT}: {text}"


def _by_code(text: str) -> str | None:
    # Redis 6.2 says `@user_script: 12: -OOM command not allowed ...`, its successors `OOM command not allowed ...`.
    words = (part.lstrip("-") for part in text.split()[:4])
    return next((_BY_CODE[part] for part in words if part in _BY_CODE), None)
