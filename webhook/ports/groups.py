"""Objects that have the size of a group of Pods."""

from typing import Protocol

from webhook.core.groups.completeness import Size
from webhook.core.policy_fields import GroupSource


class GroupObjects(Protocol):
    """Reader of Jobs, JobSets and PodGroups."""

    async def read_size(self, source: GroupSource, namespace: str, name: str, owner: str) -> Size:
        """Return the size of the group of this name; `owner` is the uid of a Job or JobSet.

        The problem of a size says why it is not known: the object is gone, has no size, or cannot be read.
        """
        ...
