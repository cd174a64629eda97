"""HTTP API of a Prometheus: queries with their answers, bounded in size."""

import asyncio
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec
from msgspec import Struct, field

from webhook.core.json_depth import UNREADABLE_JSON, decode_foreign
from webhook.core.policy_fields.nodes import PrometheusSource
from webhook.errors import LoadSourceError
from webhook.support.http_timeout import build_socket_timeouts
from webhook.support.slices import slices

_T = TypeVar("_T")
_BODY_BYTES_MAX = 16 << 20
"""Several times the answer about the nodes of a large cluster."""
_CHUNK_BYTES = 64 << 10
_ERROR_SHOWN = 200
_REFUSED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_SLICE = 50
"""Series that are decoded in one turn of the event loop. More would delay calls."""


class Series(Struct):
    """Labels, and pairs of seconds and text: `value` of an instant query, `values` of a range query."""

    metric: dict[str, str]
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] = []


class _Labelled(Struct):
    metric: dict[str, Any]


class BadSeries(Struct):
    """A series that cannot be decoded: its labels as far as they can be read, and the reason."""

    metric: dict[str, str]
    reason: str


class _Data(Struct):
    result: list[msgspec.Raw] = []


class _Answer(Struct):
    status: str
    data: _Data = field(default_factory=_Data)
    error: str = ""


class PrometheusApi:
    """Client of one server, with its CA and credentials from files. Its caller bounds the time."""

    def __init__(self, name: str, source: PrometheusSource, files: Path | None = None) -> None:
        """Create it. `files`: the folder of the credentials; any file without one."""
        self._name, self._files = name, files
        self._source = source
        self._session: aiohttp.ClientSession | None = None
        self._decoding = asyncio.Lock()
        """Decodes one answer at a time: otherwise a slice of each would run in one turn of the loop."""

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def ask(self, path: str, **parameters: str) -> AsyncIterator[list[Series | BadSeries]]:
        """Yield the series of an answer, a few at a time. LoadSourceError without an answer."""
        session = self._session = self._session or self._open_session()
        url = f"{self._source.url.rstrip('/')}/api/v1/{path}"
        try:
            async with session.post(url, data=parameters, headers=self._headers()) as response:
                body = await self._body(response)
                status = response.status
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, aiohttp.ClientSSLError) and self._session is session:
                await self.close()  # the next call reads caFile anew; a query that fails later leaves its session alone
            raise LoadSourceError(f"{self._name}: {url}: {str(error) or type(error).__name__}") from error
        if status in _REFUSED:
            raise LoadSourceError(f"{self._name}: {url}: HTTP {status}: it wants another token, or user and password")
        async with self._decoding:
            answer = self._read(body, status, _Answer)
            if answer.status != "success" or status != HTTPStatus.OK:
                raise LoadSourceError(f"{self._name}: {url}: {answer.error[:_ERROR_SHOWN] or f'HTTP {status}'}")
            async for series in slices(answer.data.result, _SLICE):
                yield [self._read_series(raw, status) for raw in series]

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            body += chunk
            if len(body) > _BODY_BYTES_MAX:
                raise LoadSourceError(f"{self._name}: {response.url.path}: more than {_BODY_BYTES_MAX >> 20} MiB")
        return bytes(body)

    def _read(self, body: bytes | msgspec.Raw, status: int, kind: type[_T]) -> _T:
        try:
            return decode_foreign(body, kind)
        except UNREADABLE_JSON as error:
            shown = f"HTTP {status}, and not an answer of Prometheus: {error}"
            raise LoadSourceError(f"{self._name}: {self._source.url}: {shown}") from error

    def _read_series(self, raw: msgspec.Raw, status: int) -> Series | BadSeries:
        try:
            return decode_foreign(raw, Series)
        except UNREADABLE_JSON as error:
            labels = self._read(raw, status, _Labelled).metric  # without labels it belongs to no node
            return BadSeries({key: text for key, text in labels.items() if isinstance(text, str)}, str(error))

    def _headers(self) -> dict[str, str]:
        source = self._source
        if source.token_file is not None:
            return {"Authorization": f"Bearer {self._read_line('tokenFile', source.token_file, 'ascii')}"}
        if source.basic_auth is None:
            return {}
        name = self._read_line("basicAuth.usernameFile", source.basic_auth.username_file)
        if ":" in name:
            raise LoadSourceError(f"{self._name}: basicAuth.usernameFile: a user's name has no colon")
        password = self._read_line("basicAuth.passwordFile", source.basic_auth.password_file)
        return {"Authorization": f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"}

    def _read_line(self, field: str, path: str, encoding: str = "utf-8") -> str:
        try:
            if self._files is not None and not Path(path).resolve().is_relative_to(self._files.resolve()):
                place = f"outside {self._files} (--prometheus-files)"
                raise LoadSourceError(f"{self._name}: {field}: {path}: {place}, is not sent: put it there")
            text = Path(path).read_text(encoding=encoding).strip()
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: symbolic links in a circle
            raise LoadSourceError(f"{self._name}: {field}: {path}: {error}") from error
        if not text.isprintable():
            raise LoadSourceError(f"{self._name}: {field}: {path}: more than one line")
        return text

    def _open_session(self) -> aiohttp.ClientSession:
        context: Any = True
        if self._source.ca_file is not None:
            try:
                context = ssl.create_default_context(cafile=self._source.ca_file)
            except (OSError, ssl.SSLError) as error:
                raise LoadSourceError(f"{self._name}: caFile: {self._source.ca_file}: {error}") from error
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), timeout=build_socket_timeouts())
