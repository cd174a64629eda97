"""Sent fields: what the creator of a new Pod sent, as the API server records it in managedFields before webhooks run.

It records nodeSelector, and lists without keys, only as a whole; schedulerName always. managedFields that name no
containers are a part of those of a Pod, as a record of it keeps.
"""

from functools import cached_property, lru_cache
from typing import Any

import msgspec

from webhook.core.json_depth import UNREADABLE_JSON, bound_depth
from webhook.core.kubernetes.pod import PodMetadata

_decode = msgspec.json.Decoder(list[dict[str, Any]] | None).decode


class SentFields:
    """The fields that the creator of one Pod sent; all fields if managedFields do not say it. Decoded if asked for."""

    def __init__(self, metadata: PodMetadata) -> None:
        self._recorded = metadata.managed_fields

    @cached_property
    def _managers(self) -> list[dict[str, Any]]:
        try:
            found = bound_depth(_decode(self._recorded)) or []
        except UNREADABLE_JSON:
            return []
        is_whole = any(_has(manager.get("fieldsV1"), ("spec", "containers")) for manager in found)
        return found if is_whole else []

    def has(self, *path: str) -> bool:
        """Return whether a field is among them; the steps of `path` are as in managedFields, without their `f:`."""
        return not self._managers or any(_has(manager.get("fieldsV1"), path) for manager in self._managers)


def is_sent(metadata: PodMetadata, *path: str) -> bool:
    """Return whether managedFields say that a Pod's creator sent a field. Decoded only if they name its last step."""
    return _encode_step(path[-1]) in bytes(metadata.managed_fields) and SentFields(metadata).has(*path)


@lru_cache
def _encode_step(step: str) -> bytes:
    """Return a step of a path as the JSON of managedFields has it."""
    return msgspec.json.encode(step if step.startswith("k:") else f"f:{step}")


def _has(fields: Any, path: tuple[str, ...]) -> bool:
    for step in path:
        if not isinstance(fields, dict):
            return True
        fields = fields.get(step if step.startswith("k:") else f"f:{step}")
        if fields is None:
            return False
    return True
