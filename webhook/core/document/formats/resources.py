"""Formats of resource names: what a quota counts, and what containers request."""

from webhook.core.document.formats.errors import FormatError
from webhook.core.document.formats.names import NAME, is_subdomain
from webhook.core.document.yaml.problems import close_to

_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_QUOTA_RESOURCES = (
    "pods",
    *_COMPUTE,
    *(f"requests.{name}" for name in _COMPUTE),
    *(f"limits.{name}" for name in _COMPUTE),
)


def _extended(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    return bool(slash) and is_subdomain(prefix) and NAME.fullmatch(name) is not None


def quota_resource(text: str) -> None:
    bare = text.removeprefix("requests.")
    if text in _QUOTA_RESOURCES or (bare.startswith("hugepages-") and NAME.fullmatch(bare)):
        return
    if text.startswith("requests.") and _extended(bare):
        return
    if _extended(text) and not text.startswith(("limits.", "count/")):
        raise FormatError("an extended resource is counted by its requests", f"write requests.{text}")
    meant = close_to(text, _QUOTA_RESOURCES)
    known = f"use {', '.join(_QUOTA_RESOURCES)}, hugepages-SIZE or requests.DOMAIN/NAME"
    raise FormatError("not a resource of Pods", f"did you mean {meant}?" if meant else known)


def container_resource(text: str) -> None:
    if text in _COMPUTE or (text.startswith("hugepages-") and NAME.fullmatch(text)) or _extended(text):
        return
    meant = close_to(text.removeprefix("requests.").removeprefix("limits."), _COMPUTE)
    known = f"use {', '.join(_COMPUTE)}, hugepages-SIZE or DOMAIN/NAME"
    raise FormatError("not a container's resource", f"did you mean {meant}?" if meant else known)
