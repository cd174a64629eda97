"""Queue of Pods that wait for their release."""

from typing import Protocol

from webhook.core.quota import Acquire


class PodQueue(Protocol):
    """Waiting Pods of the services whose plans have a `queue`. StoreUnavailableError without an answer."""

    async def reason_to_wait(self, asked: Acquire) -> str:
        """Return why a new Pod has to wait, "" if it need not. Nothing is charged."""
        ...

    async def enqueue(self, asked: Acquire) -> bool:
        """Register a gated Pod; False if `maxPods` of its service wait already. A known uid is not counted again."""
        ...
