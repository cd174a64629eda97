"""The merge of `defaults` under a service: RFC 7386, and what the policy adds to it.

LabelSelectors are values, because a merged one selects other Pods. In `hard`, `cpu` and `requests.cpu` are one
resource, as in a ResourceQuota.
"""

from typing import Any

from tests.core.generating.vocabulary import Json

LABEL_SELECTORS = {"labelSelector", "namespaceSelector", "podSelector", "to"}
_ALSO_OF_REQUESTS = {"cpu", "memory", "ephemeral-storage"}


def merge_defaults(defaults: Json, service: Json) -> Json:
    """Return the service with the defaults that it leaves in force."""
    found: Json = merge_patch(defaults, service)
    return found


def merge_patch(target: Any, patch: Any, field: str = "") -> Any:
    """RFC 7386, section 2, line by line; `field` is the key of both."""
    if not isinstance(patch, dict) or field in LABEL_SELECTORS:
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    if field == "hard":
        written = {complete_name(name) for name in patch}
        result = {name: value for name, value in result.items() if complete_name(name) not in written}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value, name)
    return result


def complete_name(resource: str) -> str:
    """Return the name of a resource in a ResourceQuota with its prefix."""
    return f"requests.{resource}" if resource in _ALSO_OF_REQUESTS else resource
