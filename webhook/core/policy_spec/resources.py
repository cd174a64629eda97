"""The stanza `resources`: ranges, ratios and defaults for containers and Pods, with LimitRange's field names."""

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


class QosClass(Choice):
    """A Pod's QoS class, by Kubernetes' own rule."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class ContainerRange(Struct, frozen=True, rename="camel"):
    """LimitRange's fields for one container; `ignore` lists container names, exact or with one trailing `*`.

    `defaultLimitRatio`: an absent limit becomes this multiple of the request. `defaultRequestRatio`: a request equal to
    its limit, which is also what the API server makes of an absent one, becomes this share of the limit.
    """

    default_request: ContainerAmounts = {}
    default: ContainerAmounts = {}
    min: ContainerAmounts = {}
    max: ContainerAmounts = {}
    max_limit_request_ratio: ContainerAmounts = {}
    default_limit_ratio: ContainerAmounts = {}
    default_request_ratio: ContainerAmounts = {}
    ignore: tuple[Annotated[str, format_of("name-pattern")], ...] = ()


class PodRange(Struct, frozen=True, rename="camel"):
    """LimitRange's fields for a whole Pod; `qosClasses`: the classes that it may have, any if absent."""

    min: ContainerAmounts = {}
    max: ContainerAmounts = {}
    max_limit_request_ratio: ContainerAmounts = {}
    qos_classes: Annotated[tuple[QosClass, ...], Meta(extra_json_schema={"minItems": 1})] | None = None


class ResourceRules(Struct, frozen=True, rename="camel"):
    container: ContainerRange = ContainerRange()
    pod: PodRange = PodRange()
    when_outside: WhenOutside = WhenOutside.DENY
