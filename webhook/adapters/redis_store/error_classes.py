"""Classes of Redis errors, each beside the error's own text."""

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

from webhook.errors import StoreFailure, StoreFault, StoreUnavailableError

_T = TypeVar("_T")

# In this order: the first matching class counts, because the library's classes derive from each other.
_BY_CLASS: tuple[tuple[StoreFault, tuple[type[Exception], ...]], ...] = (
    (
        StoreFault.AUTHENTICATION,
        (AuthenticationError, AuthenticationWrongNumberOfArgsError, NoPermissionError, ExternalAuthProviderError),
    ),
    # Redirections, too: the slot is on another node, and the transport of one server does not follow them.
    (StoreFault.FAILOVER, (BusyLoadingError, MasterDownError, ClusterDownError, ClusterError, TryAgainError, AskError)),
    (StoreFault.READONLY, (ReadOnlyError,)),
    (StoreFault.FULL, (OutOfMemoryError,)),
    (StoreFault.TIMEOUT, (RedisTimeoutError, TimeoutError)),
    (StoreFault.UNREACHABLE, (RedisConnectionError, OSError)),
)
# Errors of one command in a script that concern the whole server; any other is that operation's own.
_BY_CODE = {
    "READONLY": StoreFault.READONLY,
    "OOM": StoreFault.FULL,
    "NOPERM": StoreFault.AUTHENTICATION,
    "LOADING": StoreFault.FAILOVER,
    "MASTERDOWN": StoreFault.FAILOVER,
    "CLUSTERDOWN": StoreFault.FAILOVER,
    "NOREPLICAS": StoreFault.READONLY,
    "MISCONF": StoreFault.READONLY,
    "BUSY": StoreFault.TIMEOUT,
}
# A command in a script that the user may not run has no code: the first text is that of Redis 6.2, the second that of
# its successors. It may concern this operation alone, such as the commands of queues.
_FORBIDDEN = re.compile("The user executing the script can't|ACL failure in script")
_IN_SCRIPT = "@user_script"
MOVING = "TRYAGAIN"
"""The code of an error about one slot of a Cluster, whose keys are on two nodes."""


def fault_of(failure: StoreFailure) -> StoreFault | None:
    """Return the class of a failure: a condition stays the same as long as its class does."""
    return failure.fault


def is_of_the_store(error: Exception) -> bool:
    """Return whether the store failed; any other error is a defect in Podgate, which may affect only this call."""
    return isinstance(error, RedisError | OSError | TimeoutError)


async def translated(call: Awaitable[_T]) -> _T:
    """Await a call of a transport; its errors become StoreUnavailableError."""
    try:
        return await call
    except (RedisError, OSError, TimeoutError) as error:
        raise StoreUnavailableError(*described(error)) from error


def described(error: Exception) -> StoreFailure:
    """Return the text and the class of an error that ended a whole call."""
    text = str(error) or type(error).__name__
    for fault, classes in _BY_CLASS:
        if isinstance(error, classes):
            return StoreFailure(text, fault)
    # The library knows no class for these.
    return StoreFailure(text, _by_code(text) or _by_script(text) or StoreFault.OTHER)


def described_result(text: str) -> tuple[bool, StoreFailure]:
    """Return whether one operation's error is the whole server's, and its text and class."""
    if text.startswith(MOVING):
        return False, StoreFailure(text, StoreFault.FAILOVER)
    found = _by_code(text)
    return found is not None, StoreFailure(text, found or _by_script(text) or StoreFault.SCRIPT)


def _by_script(text: str) -> StoreFault | None:
    """Return the class of an error that the script met."""
    if _FORBIDDEN.search(text):
        return StoreFault.AUTHENTICATION
    return StoreFault.SCRIPT if _IN_SCRIPT in text else None


def _by_code(text: str) -> StoreFault | None:
    # Redis 6.2 says `@user_script: 12: -OOM command not allowed ...`, its successors `OOM command not allowed ...`.
    words = (part.lstrip("-") for part in text.split()[:4])
    return next((_BY_CODE[part] for part in words if part in _BY_CODE), None)
