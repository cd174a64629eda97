"""The stanza `resources` of a service: ranges, ratios and defaults, with the field names of a LimitRange."""

from typing import Annotated

from msgspec import Meta, Struct

from webhook.core.kubernetes.types import ResourceAmounts, format_of
from webhook.core.policy_fields.field_types import Choice, describe

ContainerAmounts = Annotated[
    ResourceAmounts, Meta(extra_json_schema={"propertyNames": {"format": "container-resource"}})
]


RemovableLimits = tuple[Annotated[str, format_of("removable-limit")], ...]


class WhenOutside(Choice):
    """Deny denies a Pod outside the range; Clamp changes its containers to the nearest bound."""

    DENY = "Deny"
    CLAMP = "Clamp"


class QosClass(Choice):
    """A Pod's QoS class, by Kubernetes' own rule."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class ContainerRange(Struct, frozen=True, rename="camel"):
    """LimitRange's fields for one container, and ratios.

    The API server sets an absent request to the limit, so that it cannot be told from an equal request.
    """

    default_request: Annotated[ContainerAmounts, describe("Requests of containers with neither.")] = {}
    default: Annotated[ContainerAmounts, describe("Limits of containers without one.")] = {}
    min: Annotated[ContainerAmounts, describe("The least that a request or limit may be.")] = {}
    max: Annotated[ContainerAmounts, describe("The most that a request or limit may be.")] = {}
    max_limit_request_ratio: Annotated[
        ContainerAmounts, describe("The most that a limit may be of its request; both are required.")
    ] = {}
    default_limit_ratio: Annotated[
        ContainerAmounts, describe("Limits of containers without one, as a multiple of the request.")
    ] = {}
    default_request_ratio: Annotated[
        ContainerAmounts, describe("Share of the limit to request where the request equals the limit.")
    ] = {}
    ignore: Annotated[
        tuple[Annotated[str, format_of("name-pattern")], ...],
        describe("Containers to leave as they are, by name or with one trailing *."),
    ] = ()
    remove: Annotated[RemovableLimits, describe("Limits to take out of each container: limits.cpu.")] = ()
    forbid: Annotated[RemovableLimits, describe("Limits that no Pod may have: limits.cpu.")] = ()


class InitContainerRange(Struct, frozen=True, rename="camel"):
    """Amounts of init containers, each instead of the one in `container`; sidecars have those of `container`."""

    default_request: Annotated[ContainerAmounts, describe("Requests of init containers with neither.")] = {}
    default: Annotated[ContainerAmounts, describe("Limits of init containers without one.")] = {}
    min: Annotated[ContainerAmounts, describe("The least that a request or limit of one may be.")] = {}
    max: Annotated[ContainerAmounts, describe("The most that a request or limit of one may be.")] = {}


class PodRange(Struct, frozen=True, rename="camel"):
    """LimitRange's fields for a whole Pod, and its QoS class."""

    min: Annotated[ContainerAmounts, describe("The least that all requests may be together.")] = {}
    max: Annotated[ContainerAmounts, describe("The most that all limits may be together.")] = {}
    max_limit_request_ratio: Annotated[
        ContainerAmounts, describe("The most that all limits may be of all requests.")
    ] = {}
    qos_classes: (
        Annotated[
            tuple[QosClass, ...],
            Meta(extra_json_schema={"minItems": 1}),
            describe("The classes that a Pod may have, after all defaults; any if absent."),
        ]
        | None
    ) = None


class ResourceRules(Struct, frozen=True, rename="camel"):
    """Requests and limits, with the field names of a LimitRange."""

    container: ContainerRange = ContainerRange()
    init_container: InitContainerRange = InitContainerRange()
    pod: PodRange = PodRange()
    when_outside: WhenOutside = WhenOutside.DENY
