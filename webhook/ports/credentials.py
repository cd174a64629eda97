"""What the API server is to call Podgate with."""

from typing import Protocol


class Credentials(Protocol):
    """Where they come from; UserError says what could not be had, and what mends it."""

    async def secret(self, name: str) -> dict[str, bytes]:
        """Return what a Secret holds."""
        ...

    async def token(self, account: str, audience: str, lifetime_seconds: int) -> str:
        """Return a new token of the cluster's own issuer for a service account."""
        ...
