"""Where everybody sees how services stand, without asking us."""

from collections.abc import Mapping
from typing import Any, Protocol


class ServiceStatusClient(Protocol):
    """A place for each service. NoBoardError where nobody has put one up, BoardError where there is no answer."""

    async def read(self) -> Mapping[str, Mapping[str, Any]]:
        """Return what stands there, by service."""
        ...

    async def write(self, service: str, status: Mapping[str, Any]) -> None:
        """Have this stand for a service, and nothing else."""
        ...

    async def delete(self, service: str) -> None:
        """Take away what stands for a service, and its place."""
        ...
