"""Resource plan: a service's `resources`, precomputed as one rule per resource."""

from typing import NamedTuple

from msgspec import Struct

from webhook.core.container_resources.resource_kinds import COMPUTE, DECIDE_QOS, overcommits
from webhook.core.kubernetes.name_patterns import split
from webhook.core.kubernetes.pod_requests import nano
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.policy_spec import ContainerRange, PodRange, ResourceRules, WhenOutside


class Amount(NamedTuple):
    """A quantity to compare, in billionths, and the text to show and to write."""

    nano: int
    text: str


ZERO = Amount(0, "0")


class ResourceRule(Struct, frozen=True):
    """Range and defaults of one resource of a container.

    `limit`: default of an absent limit. `request`: default of an absent request if the limit is absent too; None
    means the limit, as in the API server.
    """

    name: str
    low: Amount | None
    high: Amount | None
    limit: Amount | None
    request: Amount | None
    overcommits: bool
    zero_is_no_limit: bool

    @classmethod
    def of(cls, name: str, container: ContainerRange) -> "ResourceRule":
        low, high = _amount(container.min.get(name)), _amount(container.max.get(name))
        if low is not None and low.nano == 0:
            low = None  # no amount is below 0
        limit, request = _amount(container.default.get(name)), _amount(container.default_request.get(name))
        if not overcommits(name):
            # Kubernetes requires them to be equal, so either default sets both.
            limit, request = limit or request, None
        elif name in COMPUTE:
            # As LimitRange defaults itself: max is the default limit, and the default limit the default request.
            limit = limit or high
            request = request or (None if limit else low)
        return cls(name, low, high, limit, request, overcommits(name), name in COMPUTE)


class PodBounds(NamedTuple):
    """The range of one resource for a whole Pod."""

    name: str
    low: Amount | None
    high: Amount | None


class RangePlan(Struct, frozen=True, eq=False):
    """A service's `resources`, precomputed. `names`: all resources that are read from a container.

    Compared by identity, which makes it a cheap key.
    """

    rules: tuple[ResourceRule, ...]
    pod: tuple[PodBounds, ...]
    names: tuple[str, ...]
    ignored: frozenset[str]
    ignored_prefixes: tuple[str, ...]
    clamps: bool

    @classmethod
    def of(cls, rules: ResourceRules) -> "RangePlan":
        of_container = _names(rules.container)
        of_pod = _names(rules.pod)
        ignored, prefixes = split(rules.container.ignore)
        return cls(
            rules=tuple(ResourceRule.of(name, rules.container) for name in of_container),
            pod=tuple(
                PodBounds(name, _amount(rules.pod.min.get(name)), _amount(rules.pod.max.get(name))) for name in of_pod
            ),
            names=tuple(dict.fromkeys((*of_container, *of_pod, *DECIDE_QOS))),
            ignored=ignored,
            ignored_prefixes=prefixes,
            clamps=rules.when_outside is WhenOutside.CLAMP,
        )


def _names(bounds: ContainerRange | PodRange) -> tuple[str, ...]:
    words = (bounds.default_request, bounds.default) if isinstance(bounds, ContainerRange) else ()
    return tuple(dict.fromkeys(name for amounts in (*words, bounds.min, bounds.max) for name in amounts))


def _amount(quantity: Quantity | None) -> Amount | None:
    return None if quantity is None else Amount(nano(quantity.text), quantity.text)
