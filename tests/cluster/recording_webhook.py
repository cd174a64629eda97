"""A webhook server that records its calls."""

import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import web

from tests.cluster.background_loop import BackgroundLoop
from webhook.tls.context import TlsPaths

Answer = Callable[[str, bytes], Awaitable[bytes]]
"""Returns the body of the response from the path and body of a call."""


@dataclass(frozen=True)
class Call:
    """One AdmissionReview, and the path of its call without the slash."""

    path: str
    review: dict[str, Any]

    @property
    def request(self) -> dict[str, Any]:
        document: dict[str, Any] = self.review["request"]
        return document

    @property
    def operation(self) -> str:
        return str(self.request["operation"])

    @property
    def sub_resource(self) -> str:
        return str(self.request.get("subResource", ""))

    @property
    def name(self) -> str:
        """The name of the reviewed object, or its `generateName`."""
        metadata = (self.request["object"] or {}).get("metadata", {})
        return str(self.request.get("name") or metadata.get("generateName", ""))


async def admit(_: str, body: bytes) -> bytes:
    response = {"uid": json.loads(body)["request"]["uid"], "allowed": True}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).encode()


class Recorder:
    """Listens on `address` while it is entered; the exit raises the exceptions of `answer`."""

    def __init__(self, paths: TlsPaths, answer: Answer = admit) -> None:
        self.address = ""
        self.calls: list[Call] = []
        """Calls since the last `take_calls`."""
        self._answer = answer
        self._failures: list[Exception] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(paths.certificate, paths.key)
        app = web.Application()
        app.router.add_post("/{path}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1, handler_cancellation=True)
        self._loop = BackgroundLoop("recorder")

    def take_calls(self) -> list[Call]:
        """Return the calls since the last time, and forget them."""
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
            if connection.transport is not None:  # None: the API server has closed it meanwhile
                connection.transport.abort()  # an orderly close waits for the API server
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.Response:
        path, body = request.match_info["path"], await request.read()
        try:
            self.calls.append(Call(path, json.loads(body)))
            answer = await self._answer(path, body)
        except Exception as error:  # it is raised again in the thread of the test
            self._failures.append(error)
            raise
        return web.Response(body=answer, content_type="application/json")
