"""A webhook server that records its requests: which calls arrive, and their content."""

import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import web

from tests.cluster.background_loop import BackgroundLoop
from webhook.tls.context import TlsPaths

Answer = Callable[[str, bytes], Awaitable[bytes]]
"""From the path and the body of a call to the body of the answer."""


@dataclass(frozen=True)
class Call:
    """One AdmissionReview: the path that it came to, without the slash, and all of it."""

    path: str
    review: dict[str, Any]

    @property
    def request(self) -> dict[str, Any]:
        found: dict[str, Any] = self.review["request"]
        return found

    @property
    def operation(self) -> str:
        return str(self.request["operation"])

    @property
    def sub_resource(self) -> str:
        return str(self.request.get("subResource", ""))

    @property
    def name(self) -> str:
        """The name of what is reviewed, or what it will be made of."""
        metadata = (self.request["object"] or {}).get("metadata", {})
        return str(self.request.get("name") or metadata.get("generateName", ""))


async def admit(_: str, body: bytes) -> bytes:
    response = {"uid": json.loads(body)["request"]["uid"], "allowed": True}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).encode()


class Recorder:
    """Listens on `address` once it is entered; when it is left, it raises what `answer` stumbled over."""

    def __init__(self, paths: TlsPaths, answer: Answer = admit) -> None:
        self.address = ""
        self.calls: list[Call] = []
        """Those that came since they were last taken."""
        self._answer = answer
        self._failures: list[Exception] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(paths.certificate, paths.key)
        app = web.Application()
        app.router.add_post("/{path}", self._take)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1, handler_cancellation=True)
        self._loop = BackgroundLoop("recorder")

    def taken(self) -> list[Call]:
        """Return the calls since the last time that this was asked."""
        calls, self.calls = self.calls, []
        return calls

    def __enter__(self) -> Self:
        self._loop.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._close())
        self._loop.close()
        if self._failures:
            raise ExceptionGroup("the recorder could not answer", self._failures)

    async def _open(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._context).start()
        self.address = f"127.0.0.1:{self._runner.addresses[0][1]}"

    async def _close(self) -> None:
        assert self._runner.server is not None
        for connection in self._runner.server.connections:
            assert connection.transport is not None
            connection.transport.abort()  # to close in good order would be to wait for the API server
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        path, body = request.match_info["path"], await request.read()
        try:
            self.calls.append(Call(path, json.loads(body)))
            answer = await self._answer(path, body)
        except Exception as error:  # the test in the other thread is to see it, whatever it is
            self._failures.append(error)
            raise
        return web.Response(body=answer, content_type="application/json")
