"""New connections to Redis: address lookup, TLS and authentication, closed on failure; no error shows a password."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError

from webhook.adapters.redis_store.transport.credentials import RedisCredentials
from webhook.ports.store_url import RedisAddress

_CONNECT_SECONDS = 2.0

Dial = Callable[[], Coroutine[Any, Any, AbstractConnection]]
"""Connects and authenticates."""


async def dialled(
    target: RedisAddress | str, credentials: RedisCredentials, tls: ssl.SSLContext | None, database: int = 0
) -> AbstractConnection:
    """Return an authenticated connection to a server, or to the socket at a path."""
    connection = _connection(target, credentials, tls, database)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS), dropped_unless_done(connection):
            await connection.connect()  # type: ignore[no-untyped-call]  # redis-py has no type for it
    except TimeoutError:
        raise TimeoutError(f"{target}: not connected within {_CONNECT_SECONDS:g} s") from None
    except AuthenticationError as error:
        raise AuthenticationError(f"{target}: {credentials.without(str(error))}") from None
    except RedisError as error:
        raise type(error)(credentials.without(str(error))) from None
    return connection


@asynccontextmanager
async def dropped_unless_done(connection: AbstractConnection) -> AsyncIterator[None]:
    """Disconnect if the block raises."""
    try:
        yield
    except BaseException:
        await connection.disconnect(nowait=True)
        raise


def _connection(
    target: RedisAddress | str, credentials: RedisCredentials, tls: ssl.SSLContext | None, database: int
) -> AbstractConnection:
    settings: dict[str, Any] = {
        "db": database,
        "username": credentials.username or None,
        "password": credentials.password or None,
        "protocol": 2,  # no push messages, and no command except AUTH is needed to connect
        "driver_info": None,
        "socket_connect_timeout": _CONNECT_SECONDS,
        "socket_timeout": None,  # calls have one time limit in SharedConnection: redis-py's own costs more than a call
        # A call that may have been carried out must not be repeated.
        "retry": Retry(NoBackoff(), 0),
    }
    if isinstance(target, str):
        return UnixDomainSocketConnection(path=target, **settings)
    if tls is None:
        return Connection(host=target.host, port=target.port, **settings)
    connection = SSLConnection(host=target.host, port=target.port, **settings)
    connection.ssl_context.context = tls
    return connection


def all_failed(what: str, errors: Sequence[Exception]) -> RedisError:
    """Return one error for several attempts: an authentication error if one of them was that."""
    text = f"{what}: {'; '.join(str(error) or type(error).__name__ for error in errors)}"
    refused = any(isinstance(error, AuthenticationError | NoPermissionError) for error in errors)
    return AuthenticationError(text) if refused else RedisConnectionError(text)
