"""Outdated limits: those that an earlier call of the same admission chose for requests that have changed since."""

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from webhook.core.container_resources.container_plan import plan_containers
from webhook.core.container_resources.plan import Amount, RangePlan
from webhook.core.container_resources.ratios import exceeds
from webhook.core.kubernetes.pod import Container, Pod, Resources
from webhook.core.kubernetes.pod_requests import parse_nano, read_amount
from webhook.core.kubernetes.sent_fields import SentFields
from webhook.core.patch import PatchOperation, remove

_Place = tuple[str, int, str]
"""The list of containers, the index in it, and the resource."""
_NOTHING = Resources()


def remove_outdated_limits(pod: Pod, plan: RangePlan) -> list[PatchOperation]:
    """Return the operations that remove the outdated limits from a new Pod that an earlier call has rewritten.

    A limit is outdated if it does not fit its request, the Pod's creator did not send it, and the plan has another.
    Requests are never outdated: they are what a webhook that sizes Pods writes. ValueError: an unreadable quantity.
    """
    misfits = dict(_find_misfits(pod, plan))
    if not misfits:
        return []
    spec = pod.spec
    containers, init_containers = (
        _drop_limits(of_list, field, misfits)
        for field, of_list in (("containers", spec.containers), ("initContainers", spec.init_containers))
    )
    bare = replace(pod, spec=replace(spec, containers=containers, init_containers=init_containers))
    return [
        remove("spec", field, index, "resources", "limits", change.name)
        for field, index, _, shape in plan_containers(bare, plan)
        for change in shape.limits
        if (field, index, change.name) in misfits and parse_nano(str(change.text)) != misfits[field, index, change.name]
    ]


def _find_misfits(pod: Pod, plan: RangePlan) -> Iterator[tuple[_Place, int]]:
    """Yield the limits that do not fit their requests, in billionths, without those that the Pod's creator sent."""
    sent = SentFields(pod.metadata)
    ratios = {rule.name: rule.ratios.most for rule in (*plan.rules, *(plan.own_init.rules if plan.own_init else ()))}
    for field, containers in (("containers", pod.spec.containers), ("initContainers", pod.spec.init_containers)):
        for index, container in enumerate(containers or ()):
            path = ("spec", field, f'k:{{"name":"{container.name}"}}', "resources", "limits")
            for name, ratio in ratios.items():
                limit = _find_misfit(container.resources or _NOTHING, name, ratio)
                if limit is not None and not sent.has(*path, name):
                    yield (field, index, name), limit


def _find_misfit(resources: Resources, name: str, ratio: Amount | None) -> int | None:
    """Return the limit of one resource if it is below the request, or more than `ratio` times the request."""
    request, limit = read_amount(resources.requests, name), read_amount(resources.limits, name)
    if not request or limit is None:
        return None
    return limit if limit < request or (ratio is not None and exceeds(limit, request, ratio)) else None


def _drop_limits(
    containers: tuple[Container, ...] | None, field: str, misfits: Collection[_Place]
) -> tuple[Container, ...] | None:
    dropped: dict[int, set[str]] = {}
    for of_field, index, name in misfits:
        if of_field == field:
            dropped.setdefault(index, set()).add(name)
    found = list(containers or ())
    for index, names in dropped.items():
        own = found[index].resources or _NOTHING
        limits = {name: amount for name, amount in (own.limits or {}).items() if name not in names}
        found[index] = replace(found[index], resources=replace(own, limits=limits))
    return None if containers is None else tuple(found)
