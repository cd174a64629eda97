"""Credentials with which the API server calls Podgate."""

from typing import Protocol


class Credentials(Protocol):
    """Source of credentials; UserError names what is missing and the remedy."""

    async def secret(self, name: str) -> dict[str, bytes]:
        """Return the data of a Secret."""
        ...

    async def token(self, account: str, audience: str, lifetime_seconds: int) -> str:
        """Return a new token of the cluster's own issuer for a service account."""
        ...
