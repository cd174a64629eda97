"""The stanza `resources`: ranges and defaults for containers and Pods, with LimitRange's field names."""

from typing import Annotated

from msgspec import Meta, Struct

from webhook.core.kubernetes.types import ResourceAmounts, format_of
from webhook.core.policy_spec.field_types import Choice

ContainerAmounts = Annotated[
    ResourceAmounts, Meta(extra_json_schema={"propertyNames": {"format": "container-resource"}})
]


class WhenOutside(Choice):
    DENY = "Deny"
    CLAMP = "Clamp"


class ContainerRange(Struct, frozen=True, rename="camel"):
    """LimitRange's fields for one container; `ignore` lists container names, exact or with one trailing `*`."""

    default_request: ContainerAmounts = {}
    default: ContainerAmounts = {}
    min: ContainerAmounts = {}
    max: ContainerAmounts = {}
    ignore: tuple[Annotated[str, format_of("name-pattern")], ...] = ()


class PodRange(Struct, frozen=True):
    min: ContainerAmounts = {}
    max: ContainerAmounts = {}


class ResourceRules(Struct, frozen=True, rename="camel"):
    container: ContainerRange = ContainerRange()
    pod: PodRange = PodRange()
    when_outside: WhenOutside = WhenOutside.DENY
