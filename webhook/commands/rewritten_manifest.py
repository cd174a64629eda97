"""Rewritten manifests, to be committed: the spec of a Pod or of a Pod template is replaced by the rewritten one.

Podgate's own labels, annotations and gate are left out: it writes them into each Pod itself, the gate only while Pods
wait, and validates a Pod with the hash of an older policy by that policy. So a second review returns the same result.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import jsonpatch
import msgspec

from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.patch import PatchOperation
from webhook.core.placement import SERVICE_LABEL, VARIANT_LABEL
from webhook.core.shares import SLOT_ANNOTATIONS

_SPEC = "/spec/"
_OWN = (
    *(("labels", key) for key in (SERVICE_LABEL, VARIANT_LABEL)),
    *(("annotations", key) for key in (HASH_ANNOTATION, *SLOT_ANNOTATIONS)),
)


def rewrite_manifest(
    document: Mapping[str, Any], at: tuple[str | int, ...], patch: Iterable[PatchOperation]
) -> dict[str, Any]:
    """Return a manifest with the patch of a Pod applied to the Pod or template at the path `at`."""
    result = copy.deepcopy(dict(document))
    holder: Any = result
    for step in at:
        holder = holder[step]
    gates = copy.deepcopy(holder["spec"].get("schedulingGates"))
    operations = msgspec.json.decode(
        msgspec.json.encode([operation for operation in patch if operation.path.startswith(_SPEC)])
    )
    jsonpatch.apply_patch(holder, operations, in_place=True)
    _set_gates(holder["spec"], gates)
    for field, key in _OWN:
        _remove_entry(holder.get("metadata"), field, key)
    return result


def _set_gates(spec: dict[str, Any], gates: Any) -> None:
    """Give a spec back the gates of the manifest: Podgate adds none but its own."""
    if gates is None:
        spec.pop("schedulingGates", None)
    else:
        spec["schedulingGates"] = gates


def _remove_entry(metadata: Any, field: str, key: str) -> None:
    entries = metadata.get(field) if isinstance(metadata, dict) else None
    if isinstance(entries, dict) and key in entries:
        del entries[key]
        if not entries:
            del metadata[field]
