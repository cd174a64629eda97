"""Console of a server: read-only, from this server's own pages, for users that the API server knows."""

import asyncio
import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import HttpVersion11
from multidict import CIMultiDict, CIMultiDictProxy

from webhook.adapters.logs import Logs
from webhook.errors import UserError
from webhook.ports.viewers import AccessReviews
from webhook.server.http_messages import NO_CONTENT, Handler, HttpRequest, RequestConnection, RequestHead
from webhook.settings import ListenAddress, Settings

if TYPE_CHECKING:
    from aiohttp import web

    from webhook.console.listener import ConsoleListener

_HEADERS = CIMultiDictProxy(CIMultiDict({"Host": "localhost"}))
_AGAIN_SECONDS = 2.0
_NO_CLUSTER = "--console-listen: there is no cluster that knows its users"
_NO_CLUSTER_REMEDY = "leave it out: podgate console --server URL shows this server"


class ServerConsole:
    """The console of one server; without an address it does nothing. UserError: there is no cluster to ask."""

    def __init__(
        self, settings: Settings, reviews: AccessReviews | None, logs: Logs, plain: Handler, decisions: Handler
    ) -> None:
        self.addresses: list[str] = []
        self._listen, self._host = settings.console_listen, settings.console_host
        self._reviews, self._logs, self._plain, self._decisions = reviews, logs, plain, decisions
        self._listener: ConsoleListener | None = None
        if self._listen is not None and reviews is None:
            raise UserError(_NO_CLUSTER, _NO_CLUSTER_REMEDY)

    async def start(self) -> None:
        """Listen. If the port is taken, admissions go on without it, and `run` tries again."""
        if self._listen is not None and (reason := await self._try_to_listen(self._listen)):
            self._logs.write_event("error", "the console is not served", reason=reason)

    async def run(self) -> None:
        """Try again until the port is free, then wait until cancelled."""
        while self._listen is not None and not self.addresses:
            await asyncio.sleep(_AGAIN_SECONDS)
            if not await self._try_to_listen(self._listen):
                self._logs.write_event("info", "the console is served", console=self.addresses)
        await asyncio.Event().wait()

    async def stop(self) -> None:
        if self._listener is not None:
            await self._listener.stop()
            self._listener = None

    async def _try_to_listen(self, listen: ListenAddress) -> str:
        """Return why that failed, "" if it succeeded."""
        from webhook.console.listener import ConsoleListener  # noqa: PLC0415  pages only where they are wanted

        self._listener = ConsoleListener(self._build_application())
        try:
            found = await self._listener.start(listen.host, listen.port)
        except OSError as error:
            await self.stop()
            return f"--console-listen: {listen}: {error.strerror}"
        self.addresses = [str(ListenAddress(*address)) for address in found]
        return ""

    def _build_application(self) -> "web.Application":
        from webhook.console.access import is_loopback_host  # noqa: PLC0415  as above
        from webhook.console.application import ConsoleParts, build_application  # noqa: PLC0415  as above
        from webhook.console.interface.document_reader import ConsolePorts, DocumentReader  # noqa: PLC0415  as above
        from webhook.console.token_access import TokenAccess  # noqa: PLC0415  as above

        if self._reviews is None:
            raise LookupError("a console with an address must have reviews of its viewers")
        name = socket.gethostname()
        ports = ConsolePorts(_OwnPort(name, self._plain), _OwnPort(name, self._decisions))
        reader = DocumentReader(ports, lambda: time.time_ns() // 1000)
        access = TokenAccess(self._reviews, time.monotonic, self._is_proxied)
        return build_application(
            ConsoleParts(reader, access, lambda host: is_loopback_host(host) or self._is_proxied(host))
        )

    def _is_proxied(self, host: str) -> bool:
        return self._host is not None and urlsplit(f"//{host}").hostname == self._host


class _OwnPort:
    """A port of this process, read without a connection."""

    def __init__(self, name: str, handler: Handler) -> None:
        self.name = name
        self._handler = handler

    async def get(self, path: str) -> bytes:
        """Return the body of a page. UserError: an error in its place."""
        place, _, query = path.partition("?")
        head = RequestHead("GET", place, query, _HEADERS, HttpVersion11, keep_alive=False)
        connection = RequestConnection(asyncio.get_running_loop())
        answer = await self._handler(HttpRequest(connection, head, None, 0, b"", NO_CONTENT))
        if answer.status != 200:  # noqa: PLR2004  HTTP OK
            raise UserError(f"{place}: HTTP {answer.status}: {answer.body.decode(errors='replace').strip()}")
        return answer.body
