"""A Pod rewritten by Podgate, with the patch applied by an independent library."""

from collections.abc import Sequence
from typing import Any

import jsonpatch
import msgspec

from tests.core.generating.vocabulary import HASH
from tests.core.oracle.nodes import Json
from webhook.core.admission.mutation import rewrite
from webhook.core.kubernetes.pod import Pod
from webhook.core.patch import PatchOperation
from webhook.core.policy.model import Service

Patch = Sequence[Json]


def decode_pod(raw: Json) -> Pod:
    return msgspec.json.decode(msgspec.json.encode(raw), type=Pod)


def patch_of(raw: Json, service: Service) -> tuple[PatchOperation, ...]:
    return rewrite(decode_pod(raw), service, HASH)


def decode_patch(patch: Sequence[PatchOperation]) -> list[dict[str, Any]]:
    """Return a patch as decoded JSON."""
    found: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(patch))
    return found


def apply_json_patch(raw: Json, patch: Sequence[PatchOperation] | Patch) -> dict[str, Any]:
    """Apply a patch with an independent library, to copies of both."""
    result: dict[str, Any] = jsonpatch.apply_patch(
        *(msgspec.json.decode(msgspec.json.encode(document)) for document in (raw, patch))
    )
    return result


def rewrite_pod(raw: Json, service: Service) -> dict[str, Any]:
    return apply_json_patch(raw, patch_of(raw, service))


def try_patch(raw: Json, patch: Patch) -> dict[str, Any] | None:
    """Apply a part of a patch; None if it cannot be applied."""
    try:
        return apply_json_patch(raw, patch)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        return None
