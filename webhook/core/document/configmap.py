"""The ConfigMap that carries a policy: where it is, and the document in it."""

from collections.abc import Mapping

from msgspec import Struct

NAMESPACE = "podgate-system"
NAME = "podgate-policy"
LAST_GOOD = "podgate-policy-last-good"
KEY = "policy.yaml"


class Metadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class ConfigMap(Struct, frozen=True, rename="camel"):
    """As much of a ConfigMap as matters here."""

    metadata: Metadata = Metadata()
    data: Mapping[str, str] | None = None
    binary_data: Mapping[str, str] | None = None

    @property
    def place(self) -> str:
        return f"configmap {self.metadata.namespace or NAMESPACE}/{self.metadata.name or NAME}"


class NoDocumentError(Exception):
    """A ConfigMap without a policy in it; the message names object, field, value and remedy."""


def document_of(config_map: ConfigMap) -> bytes:
    """Return the bytes of the document, which its hash is made over."""
    text = (config_map.data or {}).get(KEY)
    if text is not None:
        return text.encode()
    place, remedy = config_map.place, f"put the document there (kubectl create configmap --from-file={KEY})"
    if KEY in (config_map.binary_data or {}):
        raise NoDocumentError(f"{place}: binaryData[{KEY!r}]: a policy is UTF-8 text, under data: {remedy}")
    found = ", ".join(sorted({*(config_map.data or {}), *(config_map.binary_data or {})})) or "nothing"
    raise NoDocumentError(f"{place}: data[{KEY!r}] is missing, there is {found}: {remedy}")
