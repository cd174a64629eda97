"""Outdated limits: those that an earlier call of the same admission chose for requests that have changed since."""

from collections.abc import Iterator

from webhook.core.container_resources.container_plan import plan_containers
from webhook.core.container_resources.outdated_amounts import (
    NO_RESOURCES,
    AmountPlace,
    drop_amounts,
    is_sent,
    list_containers,
)
from webhook.core.container_resources.plan import Amount, RangePlan
from webhook.core.container_resources.ratios import exceeds
from webhook.core.kubernetes.pod import Pod, Resources
from webhook.core.kubernetes.pod_requests import parse_nano, read_amount
from webhook.core.kubernetes.sent_fields import SentFields
from webhook.core.patch import PatchOperation, remove


def remove_outdated_limits(pod: Pod, plan: RangePlan) -> list[PatchOperation]:
    """Return the operations that remove the outdated limits from a new Pod that an earlier call has rewritten.

    A limit is outdated if it does not fit its request, the Pod's creator did not send it, and the plan has another.
    Requests are never outdated: they are what a webhook that sizes Pods writes. ValueError: an unreadable quantity.
    """
    misfits = dict(_find_misfits(pod, plan))
    if not misfits:
        return []
    return [
        remove("spec", field, index, "resources", "limits", change.name)
        for field, index, _, shape in plan_containers(drop_amounts(pod, misfits), plan)
        for change in shape.limits
        if (limit := misfits.get(AmountPlace(field, index, "limits", change.name))) is not None
        and parse_nano(str(change.text)) != limit
    ]


def _find_misfits(pod: Pod, plan: RangePlan) -> Iterator[tuple[AmountPlace, int]]:
    """Yield the limits that do not fit their requests, in billionths, without those that the Pod's creator sent."""
    sent = SentFields(pod.metadata)
    ratios = {rule.name: rule.ratios.most for rule in (*plan.rules, *(plan.own_init.rules if plan.own_init else ()))}
    for field, index, container in list_containers(pod):
        for name, ratio in ratios.items():
            place = AmountPlace(field, index, "limits", name)
            limit = _find_misfit(container.resources or NO_RESOURCES, name, ratio)
            if limit is not None and not is_sent(sent, container, place):
                yield place, limit


def _find_misfit(resources: Resources, name: str, ratio: Amount | None) -> int | None:
    """Return the limit of one resource if it is below the request, or more than `ratio` times the request."""
    request, limit = read_amount(resources.requests, name), read_amount(resources.limits, name)
    if not request or limit is None:
        return None
    return limit if limit < request or (ratio is not None and exceeds(limit, request, ratio)) else None
