"""ConfigMaps with Podgate's documents: their names, and how a document is read from one."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

NAMESPACE = "podgate-system"
NAME = "podgate-policy"
LAST_GOOD = "podgate-policy-last-good"
KEY = "policy.yaml"
SIGNATURE_KEY = "policy.sig"
"""Ed25519 signature of the policy, in base64; needed where servers have --policy-keys."""
OVERRIDES = "podgate-overrides"
OVERRIDES_KEY = "overrides.yaml"
ROLLOUT_STATE = "podgate-policy-state"
ROLLOUT_STATE_KEY = "state.json"
"""State of the policy's rollout, written by the leader and by commands."""
REVISION_PREFIX = "podgate-policy-"
"""A ControllerRevision of this name and a policy's hash holds the document of the policy."""
PART_PREFIX = "podgate-part-"
"""A ConfigMap of this name and a part's name holds the part."""
PART_LABEL = "podgate.io/policy-part"
"""Label of the ConfigMap of a part, whose value is the part's name."""
INSTALLATION = "podgate-installation"
"""Record of `podgate install`; absent in other installations."""


class ConfigMapMetadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] | None = None


class ConfigMap(Struct, frozen=True, rename="camel"):
    """The fields of a ConfigMap that are read."""

    metadata: ConfigMapMetadata = ConfigMapMetadata()
    data: Mapping[str, str] | None = None
    binary_data: Mapping[str, str] | None = None

    @property
    def place(self) -> str:
        return f"configmap {self.metadata.namespace or NAMESPACE}/{self.metadata.name or NAME}"

    def read_signature(self) -> str | None:
        """Return the policy's signature, None if it has none."""
        return (self.data or {}).get(SIGNATURE_KEY)


class NoDocumentError(Exception):
    """A ConfigMap without the document; the message names object, field, value and remedy."""


def read_document(config_map: ConfigMap, key: str = KEY) -> bytes:
    """Return the document as bytes, of which its hash is computed."""
    text = (config_map.data or {}).get(key)
    if text is not None:
        return text.encode()
    place, remedy = config_map.place, f"put the document there (kubectl create configmap --from-file={key})"
    if key in (config_map.binary_data or {}):
        raise NoDocumentError(f"{place}: binaryData[{key!r}]: it is UTF-8 text, under data: {remedy}")
    found = ", ".join(sorted({*(config_map.data or {}), *(config_map.binary_data or {})})) or "nothing"
    raise NoDocumentError(f"{place}: data[{key!r}] is missing, there is {found}: {remedy}")


def check_label(part: ConfigMap) -> None:
    """Check that name and label of a part's ConfigMap agree. NoDocumentError: they do not."""
    name, labelled = part.metadata.name, (part.metadata.labels or {}).get(PART_LABEL, "")
    if name != f"{PART_PREFIX}{labelled}":
        own = name.removeprefix(PART_PREFIX)
        remedy = f"label it {PART_LABEL}={own}" if own != name else f"name it {PART_PREFIX}{labelled}"
        raise NoDocumentError(
            f"{part.place}: metadata.labels[{PART_LABEL!r}]: {labelled or '(absent)'}: its name is another: {remedy}"
        )


def read_parts(config_maps: Iterable[ConfigMap]) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the texts of parts by name, b"" for one without a text, and the reasons for these.

    The name of a ConfigMap decides, and not its label: whoever may write one ConfigMap could name another part.
    """
    texts: dict[str, bytes] = {}
    unread: dict[str, str] = {}
    for config_map in config_maps:
        part = config_map.metadata.name.removeprefix(PART_PREFIX)
        try:
            check_label(config_map)
            texts[part] = read_document(config_map)
        except NoDocumentError as error:
            texts[part], unread[part] = b"", str(error)
    return texts, unread
