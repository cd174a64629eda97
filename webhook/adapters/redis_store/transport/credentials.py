"""CredentialSource: user names, passwords and certificates, read from their files for each new connection."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError

from webhook.ports.store_url import StoreFiles, StoreUrl

_FILE_BYTES_MAX = 1 << 20
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RedisCredentials:
    """User name and password of a connection; both empty: no authentication."""

    username: str
    password: str = field(repr=False)

    def redact(self, text: str) -> str:
        """Return a server's message without the password: some servers repeat input that they cannot parse."""
        return text.replace(self.password, "***") if self.password else text


class CredentialSource:
    """Credentials and TLS of one store URL. RedisError names a file that is missing or invalid.

    Files are read in a thread: a disk that hangs must not hang admissions.
    """

    def __init__(self, url: StoreUrl, files: StoreFiles) -> None:
        self._url = url
        self._files = files
        self._tls_files: tuple[bytes, ...] | None = None
        self._context: ssl.SSLContext | None = None

    async def credentials(self) -> RedisCredentials:
        """Return the credentials for the servers that hold data."""
        files = self._files
        return await _read_credentials(
            files.username_file, files.password_file, RedisCredentials(self._url.username, self._url.password)
        )

    async def sentinel_credentials(self) -> RedisCredentials:
        files = self._files
        return await _read_credentials(
            files.sentinel_username_file, files.sentinel_password_file, RedisCredentials("", "")
        )

    async def tls(self) -> ssl.SSLContext | None:
        """Return the context of the next connection, None without TLS; re-created when a file has changed."""
        if not self._url.tls:
            return None
        return await asyncio.to_thread(self._current_context)

    def _current_context(self) -> ssl.SSLContext:
        files = self._files
        contents = tuple(_read(path) for path in (files.ca, files.cert, files.key) if path is not None)
        if self._context is None or contents != self._tls_files:
            context = _make_context(lambda: ssl.create_default_context(cafile=files.ca), files.ca)
            cert = files.cert
            if cert is not None:
                # An empty password: never prompt for one.
                _make_context(lambda: context.load_cert_chain(cert, files.key, password=""), cert, files.key)
            self._context, self._tls_files = context, contents
        return self._context


async def _read_credentials(username: Path | None, password: Path | None, known: RedisCredentials) -> RedisCredentials:
    if username is None and password is None:
        return known

    def read() -> RedisCredentials:
        return RedisCredentials(
            _read_line(username) if username else known.username, _read_line(password) if password else known.password
        )

    return await asyncio.to_thread(read)


def _read_line(path: Path) -> str:
    """Return a file's text without a trailing line end; AuthenticationError if there is none."""
    try:
        text = _read(path).decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise AuthenticationError(f"{path}: is not UTF-8 text") from None
    except RedisConnectionError as error:
        raise AuthenticationError(str(error)) from None
    if not text:
        raise AuthenticationError(f"{path}: is empty")
    return text


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(_FILE_BYTES_MAX)
    except OSError as error:
        raise RedisConnectionError(f"{path}: cannot be read: {error.strerror}") from None


def _make_context(make: Callable[[], _T], *paths: Path | None) -> _T:
    try:
        return make()
    except OSError as error:  # an ssl.SSLError is one
        reason = getattr(error, "reason", None) or error.strerror or str(error)
        named = " and ".join(str(path) for path in paths if path)
        raise RedisConnectionError(f"{named}: {reason.lower().replace('_', ' ')}") from None
