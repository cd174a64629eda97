"""ServiceStatus objects in the cluster."""

from collections.abc import Mapping
from typing import Any, Protocol


class ServiceStatusClient(Protocol):
    """One object for each service. ServiceStatusNotInstalledError without the kind, ServiceStatusError on failure."""

    async def read(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the status of each object by service."""
        ...

    async def write(self, service: str, status: Mapping[str, Any]) -> None:
        """Replace the status of a service's object, created if necessary."""
        ...

    async def delete(self, service: str) -> None:
        """Delete the object of a service."""
        ...
