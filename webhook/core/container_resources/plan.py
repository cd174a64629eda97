"""Resource plan: a service's `resources`, precomputed as one rule per resource, by its kind."""

from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.kubernetes.name_patterns import split_patterns
from webhook.core.kubernetes.pod_requests import HUGE_PAGES, parse_nano
from webhook.core.kubernetes.quantity import Quantity, parse_quantity
from webhook.core.policy_fields import (
    ContainerRange,
    InitContainerRange,
    PodRange,
    QosClass,
    ResourceRules,
    WhenOutside,
)

COMPUTE = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resources without a limit, or with a limit of 0, are unbounded."""
DECIDE_QOS = ("cpu", "memory")
_NATIVE_DOMAIN = "kubernetes.io/"


def is_huge_pages(name: str) -> bool:
    return name.startswith(HUGE_PAGES)


def parse_page_size(name: str) -> int | None:
    """Return the size of one huge page in bytes, None if the name has no valid size."""
    try:
        size = parse_quantity(name.removeprefix(HUGE_PAGES))
    except ValueError:
        return None
    return int(size) if size > 0 and size.denominator == 1 else None


def is_extended(name: str) -> bool:
    """Return whether a resource is an extended resource, such as a device plugin's: counted in whole numbers."""
    return "/" in name and _NATIVE_DOMAIN not in name


def can_overcommit(name: str) -> bool:
    """Return whether a limit may be above its request; for other resources Kubernetes requires them to be equal."""
    return not is_extended(name) and not is_huge_pages(name)


class Amount(NamedTuple):
    """A quantity to compare, in billionths, and the text to show and to write."""

    nano: int
    text: str


ZERO = Amount(0, "0")


class Ratios(NamedTuple):
    """Ratios of one resource of a container, in billionths; None: not given.

    `most`: the highest limit, as a multiple of the request. `limit`: an absent limit as a multiple of the request.
    `request`: an absent request as a share of the limit. `takes_equal`: one equal to a written limit counts as absent.
    """

    most: Amount | None = None
    limit: Amount | None = None
    request: Amount | None = None
    takes_equal: bool = False


NO_RATIOS = Ratios()


class ResourceRule(Struct, frozen=True):
    """Range, ratios and defaults of one resource of a container.

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
    ratios: Ratios = NO_RATIOS

    @classmethod
    def from_range(cls, name: str, container: ContainerRange) -> "ResourceRule":
        low, high = _convert_amount(container.min.get(name)), _convert_amount(container.max.get(name))
        if low is not None and low.nano == 0:
            low = None  # no amount is below 0
        limit, request = (
            _convert_amount(container.default.get(name)),
            _convert_amount(container.default_request.get(name)),
        )
        if not can_overcommit(name):
            # Kubernetes requires them to be equal, so either default sets both.
            limit, request = limit or request, None
        elif name in COMPUTE:
            # As LimitRange defaults itself: max is the default limit, and the default limit the default request.
            limit = limit or high
            request = request or (None if limit else low)
        ratios = Ratios(
            _convert_amount(container.max_limit_request_ratio.get(name)),
            _convert_amount(container.default_limit_ratio.get(name)),
            _convert_amount(container.default_request_ratio.get(name)),
            takes_equal=name in container.default_request_ratio,
        )
        return cls(name, low, high, limit, request, can_overcommit(name), name in COMPUTE, ratios)


class PodBounds(NamedTuple):
    """The range of one resource for a whole Pod."""

    name: str
    low: Amount | None
    high: Amount | None
    ratio: Amount | None = None


class RangePlan(Struct, frozen=True, eq=False):
    """A service's `resources`, precomputed. `names`: all resources that are read from a container.

    `remove`, `forbid`: resources whose limits are taken out, and denied; `no_limits`: both, with the field.
    `nothing`: the amounts of a container without any. `own_init`: the plan of init containers that are no sidecars, if
    they have amounts of their own. `judges`: whether anything is written into a container, or checked of one.
    Compared by identity, which makes it a cheap key.
    """

    rules: tuple[ResourceRule, ...]
    pod: tuple[PodBounds, ...]
    names: tuple[str, ...]
    ignored: frozenset[str]
    ignored_prefixes: tuple[str, ...]
    clamps: bool
    qos_classes: tuple[QosClass, ...] | None = None
    own_later: "RangePlan | None" = None
    remove: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    no_limits: tuple[tuple[str, Literal["remove", "forbid"]], ...] = ()
    nothing: tuple[None, ...] = ()
    ignores: bool = False
    judges: bool = False
    own_init: "RangePlan | None" = None

    @property
    def later(self) -> "RangePlan":
        """The plan for a Pod that Podgate has rewritten: a request equal to its limit is no longer an absent one."""
        return self.own_later or self

    @classmethod
    def from_rules(cls, rules: ResourceRules) -> "RangePlan":
        plan = cls._build_plan(rules)
        if not any(rule.ratios.takes_equal for rule in plan.rules):
            return plan
        own_init = plan.own_init and replace(plan.own_init, rules=_forget_equal(plan.own_init.rules))
        return replace(plan, own_later=replace(plan, rules=_forget_equal(plan.rules), own_init=own_init))

    @classmethod
    def _build_plan(cls, rules: ResourceRules) -> "RangePlan":
        remove, forbid = _list_limits(rules.container.remove), _list_limits(rules.container.forbid)
        of_init = merge_ranges(rules.container, rules.init_container)
        own_amounts = _list_names(rules.init_container)
        of_container, of_pod = _list_names(rules.container), _list_names(rules.pod)
        names = tuple(dict.fromkeys((*of_container, *own_amounts, *remove, *forbid, *of_pod, *DECIDE_QOS)))
        ignored, prefixes = split_patterns(rules.container.ignore)
        plan = cls(
            rules=tuple(ResourceRule.from_range(name, rules.container) for name in of_container),
            pod=tuple(_build_pod_bounds(name, rules.pod) for name in of_pod),
            names=names,
            ignored=ignored,
            ignored_prefixes=prefixes,
            clamps=rules.when_outside is WhenOutside.CLAMP,
            qos_classes=rules.pod.qos_classes,
            remove=remove,
            forbid=forbid,
            no_limits=(*((name, "remove") for name in remove), *((name, "forbid") for name in forbid)),
            nothing=(None,) * len(names),
            ignores=bool(ignored or prefixes),
            judges=bool(of_container or own_amounts or remove or forbid),
        )
        if not own_amounts:
            return plan
        init_rules = tuple(ResourceRule.from_range(name, of_init) for name in _list_names(of_init))
        return replace(plan, own_init=replace(plan, rules=init_rules))


def _forget_equal(rules: tuple[ResourceRule, ...]) -> tuple[ResourceRule, ...]:
    """Return the rules by which a request equal to its limit is a written one."""
    return tuple(replace(rule, ratios=rule.ratios._replace(takes_equal=False)) for rule in rules)


def merge_ranges(container: ContainerRange, own: InitContainerRange) -> ContainerRange:
    """Return the range of init containers: that of containers, with the amounts that init containers have instead."""
    ratios = {name: ratio for name, ratio in container.default_limit_ratio.items() if name not in own.default}
    return replace(
        container,
        default_request={**container.default_request, **own.default_request},
        default={**container.default, **own.default},
        min={**container.min, **own.min},
        max={**container.max, **own.max},
        default_limit_ratio=ratios,
    )


def _list_limits(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the resources of `limits.NAME`."""
    return tuple(dict.fromkeys(name.removeprefix("limits.") for name in names))


def _list_names(bounds: ContainerRange | InitContainerRange | PodRange) -> tuple[str, ...]:
    every = [bounds.min, bounds.max]
    if not isinstance(bounds, PodRange):
        every = [bounds.default_request, bounds.default, *every]
    if not isinstance(bounds, InitContainerRange):
        every.append(bounds.max_limit_request_ratio)
    if isinstance(bounds, ContainerRange):
        every += [bounds.default_limit_ratio, bounds.default_request_ratio]
    return tuple(dict.fromkeys(name for amounts in every for name in amounts))


def _build_pod_bounds(name: str, pod: PodRange) -> PodBounds:
    bounds = (pod.min, pod.max, pod.max_limit_request_ratio)
    return PodBounds(name, *(_convert_amount(amounts.get(name)) for amounts in bounds))


def _convert_amount(quantity: Quantity | None) -> Amount | None:
    return None if quantity is None else Amount(parse_nano(quantity.text), quantity.text)
