"""New connections to Redis: address lookup, TLS and authentication, closed on failure; no error shows a password."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from webhook.adapters.redis_store.transport.credentials import RedisCredentials
from webhook.adapters.redis_store.transport.stream import RespStream
from webhook.ports.store_url import RedisAddress

_CONNECT_SECONDS = 2.0

Dial = Callable[[], Coroutine[Any, Any, RespStream]]
"""Connects and authenticates."""


async def dial_server(
    target: RedisAddress | str, credentials: RedisCredentials, tls: ssl.SSLContext | None, database: int = 0
) -> RespStream:
    """Return an authenticated connection to a server, or to the socket at a path."""
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            stream = await _connect(target, tls)
            async with drop_unless_done(stream):
                await _introduce(stream, credentials, database)
    except TimeoutError:
        raise TimeoutError(f"{target}: not connected within {_CONNECT_SECONDS:g} s") from None
    except AuthenticationError as error:
        raise AuthenticationError(f"{target}: {credentials.redact(str(error))}") from None
    except RedisError as error:
        raise type(error)(credentials.redact(str(error))) from None
    except UnicodeError:
        raise RedisConnectionError(f"{target}: its host is not a valid name") from None
    except OSError as error:  # an ssl.SSLError is one
        raise RedisConnectionError(f"{target}: {error.strerror or error}") from None
    return stream


@asynccontextmanager
async def drop_unless_done(stream: RespStream) -> AsyncIterator[None]:
    """Disconnect if the block raises."""
    try:
        yield
    except BaseException:
        stream.close()
        raise


async def _connect(target: RedisAddress | str, tls: ssl.SSLContext | None) -> RespStream:
    loop = asyncio.get_running_loop()
    if isinstance(target, str):
        _, stream = await loop.create_unix_connection(RespStream, target)
    else:
        _, stream = await loop.create_connection(RespStream, target.host, target.port, ssl=tls)
    return stream


async def _introduce(stream: RespStream, credentials: RedisCredentials, database: int) -> None:
    """Authenticate and select a database, only if they are given: no other command is needed to connect."""
    if credentials.username or credentials.password:
        names = (credentials.username,) if credentials.username else ()
        await stream.ask(("AUTH", *names, credentials.password))
    if database:
        await stream.ask(("SELECT", database))


def join_errors(what: str, errors: Sequence[Exception]) -> RedisError:
    """Return one error for several attempts: of authentication if one of them was that, a timeout if all were."""
    text = f"{what}: {'; '.join(str(error) or type(error).__name__ for error in errors)}"
    refused = any(isinstance(error, AuthenticationError | NoPermissionError) for error in errors)
    if refused:
        return AuthenticationError(text)
    late = errors and all(isinstance(error, TimeoutError | RedisTimeoutError) for error in errors)
    return RedisTimeoutError(text) if late else RedisConnectionError(text)
