"""Reasons to call: what the validating call may decide, warn of or count for a rewritten Pod of a service."""

from collections.abc import Iterator

from webhook.core import placement
from webhook.core.policy.model import Service
from webhook.core.policy_spec import Mode

_TRIED = frozenset({Mode.WARN, Mode.AUDIT})


def to_validate(service: Service) -> tuple[str, ...]:
    """Return the reasons to validate a new Pod that has been rewritten; none if nothing can come of it.

    A stanza counts in any mode, also Disabled: an override may change the mode, and does not change this configuration.
    """
    return tuple(_found(service))


def _found(service: Service) -> Iterator[str]:
    modes = service.modes
    if service.quota is not None:
        yield _in_words("quota", modes.quota)
    if service.pool is not None:
        yield _in_words("pool", modes.quota)
    if service.breaker is not None:
        yield _in_words("breaker", modes.breaker)
    ranges, plan = service.range_plan, service.placement_plan
    if ranges is not None and (ranges.rules or ranges.pod or ranges.qos_classes is not None):
        yield _in_words("resources", modes.resources)
    if plan is not None and (placement.requires(plan) or modes.placement in _TRIED):
        yield _in_words("placement", modes.placement)


def _in_words(stanza: str, mode: Mode) -> str:
    return f"{stanza} (Disabled, which an override may change)" if mode is Mode.DISABLED else f"{stanza} ({mode})"


def denies_node_name(service: Service) -> bool:
    """Return whether a Pod that names its node is denied."""
    return service.placement_plan is not None and not service.placement_plan.allow_node_name
