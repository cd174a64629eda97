"""Workload controllers in the cluster whose Pods were denied."""

from typing import Protocol

from webhook.core.held_controllers import ControllerReference, CreatingController


class CreationFailureHandler(Protocol):
    """Receiver of the Events about Pods that a controller could not create."""

    async def failed(self, controller: ControllerReference, *, at_us: int, is_held: bool) -> None:
        """Handle a failure, at the time of its newest Event. `is_held`: quota, breaker or store denied the Pod."""
        ...


class ControllerClient(Protocol):
    """Controllers that create Pods. ControllerAccessError without an answer."""

    async def run(self, handler: CreationFailureHandler) -> None:
        """Watch creation failures until cancelled; first those of the last hour, the oldest first."""
        ...

    async def find(self, controller: ControllerReference) -> CreatingController | None:
        """Return a controller, None if it does not exist any more."""
        ...

    async def wake(self, controller: ControllerReference, at_us: int) -> bool:
        """Change an annotation of a controller, so that it tries again; False if it does not exist any more."""
        ...
