"""Port to the API server's reviews: whose a token is, and what a user may do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class ReviewedUser:
    """A user as the API server knows them from a token."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class ResourceAccess(NamedTuple):
    """An access to be reviewed; without a name to all objects of a namespace."""

    verb: str
    resource: str
    namespace: str
    subresource: str = ""
    name: str = ""


class AccessReviews(Protocol):
    """Reviews by the API server. UserError: it does not answer, or this process may not ask."""

    async def find_user(self, token: str) -> ReviewedUser | None:
        """Return whose a token is; None if it is not valid."""
        ...

    async def may(self, user: ReviewedUser, access: ResourceAccess) -> bool:
        """Return whether RBAC lets a user do something."""
        ...
