"""Error replies of Redis as redis-py's exceptions."""

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    ExecAbortError,
    ExternalAuthProviderError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

_BY_CODE: dict[str, type[RedisError]] = {
    "ASK": AskError,
    "CLUSTERDOWN": ClusterDownError,
    "CROSSSLOT": ClusterCrossSlotError,
    "DENIED": AuthenticationError,
    "EXECABORT": ExecAbortError,
    "LOADING": BusyLoadingError,
    "MASTERDOWN": MasterDownError,
    "MOVED": MovedError,
    "NOAUTH": AuthenticationError,
    "NOPERM": NoPermissionError,
    "NOSCRIPT": NoScriptError,
    "OOM": OutOfMemoryError,
    "READONLY": ReadOnlyError,
    "TRYAGAIN": TryAgainError,
    "WRONGPASS": AuthenticationError,
}
_BY_TEXT: dict[str, type[RedisError]] = {
    "max number of clients reached": RedisConnectionError,
    "invalid password": AuthenticationError,
    "wrong number of arguments for 'auth' command": AuthenticationWrongNumberOfArgsError,
    "wrong number of arguments for 'AUTH' command": AuthenticationWrongNumberOfArgsError,
    "AUTH <password> called without any password configured for the default user. "
    "Are you sure your configuration is correct?": AuthenticationError,
    "Client sent AUTH, but no password is set": AuthenticationError,
    "problem with LDAP service": ExternalAuthProviderError,
}
"""Of replies with the code ERR."""


def error_of(reply: str) -> RedisError:
    """Return the exception of a reply such as `NOSCRIPT No matching script`; its text is without the code."""
    code, _, text = reply.partition(" ")
    if code == "ERR":
        return _BY_TEXT.get(text, ResponseError)(text, status_code=code)
    found = _BY_CODE.get(code)
    return ResponseError(reply) if found is None else found(text, status_code=code)
