"""Receiver of OTLP over HTTP that decodes the protocol's own messages, and a real OpenTelemetry Collector before it."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.cluster.go_programs import go_program
from tests.cluster.processes import find_free_ports
from tests.timeouts import HANG_SECONDS

THROUGH_COLLECTOR = os.environ.get("PODGATE_TEST_COLLECTOR", "") == "yes"
"""`make soak` sends all traces through a Collector: to build it takes more than two minutes of CPU."""


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
        return web.Response(content_type="application/x-protobuf")

    application = web.Application()
    application.router.add_post("/{path:.*}", collect)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        if THROUGH_COLLECTOR:
            async with _collector(f"http://{host}:{port}") as endpoint:
                yield endpoint, received
        else:
            yield f"http://{host}:{port}", received
    finally:
        await runner.cleanup()


def list_spans(received: Sequence[ReceivedTraces]) -> list[Span]:
    return [
        span
        for export in received
        for of_resource in export.body.resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]


@asynccontextmanager
async def _collector(target: str) -> AsyncIterator[str]:
    """Run a Collector that passes traces on to `target` before it answers; yield its address."""
    program = await asyncio.to_thread(go_program, Path(__file__).parent / "collector", "podgate.io/collector")
    [port] = find_free_ports(1)
    document = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {"otlp_http": {"endpoint": target, "compression": "none", "sending_queue": {"enabled": False}}},
        "service": {
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["otlp_http"]}},
            "telemetry": {"metrics": {"level": "none"}},
        },
    }
    with TemporaryDirectory() as folder:
        configuration, log = Path(folder) / "collector.json", Path(folder) / "log"
        configuration.write_text(json.dumps(document))
        with log.open("wb") as stream:
            process = await asyncio.create_subprocess_exec(
                program, "--config", configuration, stdout=stream, stderr=stream
            )
        try:
            async with asyncio.timeout(HANG_SECONDS):
                while "Everything is ready" not in log.read_text():
                    assert process.returncode is None, log.read_text()
                    await asyncio.sleep(0.02)
            yield f"http://127.0.0.1:{port}"
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
