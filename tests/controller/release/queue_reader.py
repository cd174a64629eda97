"""Parts of `queue_reader` tests that others use, too."""

from tests.controller.release.queue_simulation import QueueSimulation
from webhook.controller.release.queue_reader import QueueSelection
from webhook.core.reporting.queue_document import QueueDocument


async def document(simulation: QueueSimulation, **asked: object) -> QueueDocument:
    return await simulation.loop.queue.document(QueueSelection(**asked))  # type: ignore[arg-type]
