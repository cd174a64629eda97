"""Receiver of OTLP over HTTP that decodes the protocol's own messages."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class ReceivedTraces(NamedTuple):
    """One export."""

    path: str
    content_type: str
    body: ExportTraceServiceRequest


@asynccontextmanager
async def trace_receiver() -> AsyncIterator[tuple[str, list[ReceivedTraces]]]:
    """Run a receiver; yield its address and what it has received."""
    received: list[ReceivedTraces] = []

    async def collect(request: web.Request) -> web.Response:
        body = ExportTraceServiceRequest.FromString(await request.read())
        received.append(ReceivedTraces(request.path, request.content_type, body))
        return web.Response()

    application = web.Application()
    application.router.add_post("/{path:.*}", collect)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}", received
    finally:
        await runner.cleanup()


def spans_of(received: Sequence[ReceivedTraces]) -> list[Span]:
    return [
        span
        for export in received
        for of_resource in export.body.resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]
