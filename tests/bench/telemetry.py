"""Traces and log lines per review of the compared Podgate servers: CPU times compare only if these are alike."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.bench.servers import Target

ALIKE = 1.5
"""Maximum ratio of two rates that are alike: they are samples."""


@dataclass
class TraceReceiver:
    """An OTLP endpoint that counts traces by server."""

    address: str
    traces: Counter[str] = field(default_factory=Counter)

    def endpoint(self, server: str) -> str:
        return f"{self.address}/{server}/v1/traces"

    async def take(self, request: web.Request) -> web.Response:
        batch = ExportTraceServiceRequest.FromString(await request.read())
        spans = (span for resource in batch.resource_spans for scope in resource.scope_spans for span in scope.spans)
        self.traces[request.match_info["server"]] += sum(not span.parent_span_id for span in spans)
        return web.Response()


@asynccontextmanager
async def trace_receiver() -> AsyncIterator[TraceReceiver]:
    """Run the endpoint until the block ends."""
    receiver = TraceReceiver("")
    application = web.Application(client_max_size=2**26)
    application.router.add_post("/{server}/v1/traces", receiver.take)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        receiver.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield receiver
    finally:
        await runner.cleanup()


class Rates(msgspec.Struct, frozen=True):
    """Rates of a server, over all its reviews."""

    server: str
    reviews: int
    traces_per_review: float
    log_lines_per_review: float

    def __str__(self) -> str:
        return (
            f"  {self.server:26} {self.traces_per_review:.4f} traces and {self.log_lines_per_review:.4f} log lines"
            f" a review, of {self.reviews}"
        )


async def rates(receiver: TraceReceiver, number: int, target: Target) -> Rates:
    """Return the rates of a Podgate server; `number` identifies it at the receiver."""
    assert target.serving is not None
    _, text = await target.serving.get("/metrics")
    totals = [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith("podgate_reviews_total{")]
    reviews = max(1, int(sum(map(float, totals))))
    lines = len(target.serving.log.read_bytes().splitlines())
    return Rates(target.name, reviews, receiver.traces[str(number)] / reviews, lines / reviews)


def unlike(compared: list[Rates]) -> list[str]:
    """Return a warning for each server whose rates differ from those of the first."""
    first, *others = compared
    return [
        f"warning: {other.server} and {first.server} differ in traces or log lines: do not compare their CPU"
        for other in others
        if not _alike(other.traces_per_review, first.traces_per_review)
        or not _alike(other.log_lines_per_review, first.log_lines_per_review)
    ]


def _alike(one: float, other: float) -> bool:
    return one == other or (min(one, other) > 0 and max(one, other) / min(one, other) <= ALIKE)
