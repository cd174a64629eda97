"""Helpers of the `queue_reader` tests that other tests use, too."""

from tests.controller.release.queue_simulation import QueueSimulation
from webhook.controller.release.queue_reader import QueueSelection
from webhook.core.reporting.queue_document import QueueDocument


async def read_document(simulation: QueueSimulation, **asked: object) -> QueueDocument:
    return await simulation.loop.queue.make_document(QueueSelection(**asked))  # type: ignore[arg-type]
