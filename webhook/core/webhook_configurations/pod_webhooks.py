"""Webhooks of Pods: one for each region, with the calls that it makes and leaves out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from webhook.core.policy.model import Policy
from webhook.core.webhook_configurations import pod_calls
from webhook.core.webhook_configurations.cel import pieces
from webhook.core.webhook_configurations.name_sets import NameSet
from webhook.core.webhook_configurations.namespace_regions import NamespaceRegion, all_regions, regions
from webhook.core.webhook_configurations.pod_calls import PodCalls
from webhook.core.webhook_configurations.service_regions import ServiceRegion, ServiceRegions


class PodWebhook(NamedTuple):
    """A webhook of Pods; `calls` are those for new Pods."""

    name: str
    path: str
    region: NamespaceRegion
    failure_policy: str
    calls: PodCalls


def pod_webhooks(policy: Policy, policy_hash: str, *, all_calls: bool) -> tuple[PodWebhook, ...]:
    """Return the webhooks of a policy, first the mutating ones.

    Without the hash of the policy's document no validating call is left out, with `all_calls` no call at all.
    TooManyEntriesError: the policy's namespaceSelectors would need too many webhooks.
    """
    closed, others = regions(policy)
    services = ServiceRegions(policy.services)

    def found(
        name: str, where: Iterable[NamespaceRegion], failure_policy: str, calls: Callable[..., PodCalls]
    ) -> Iterator[PodWebhook]:
        for numbered, region in named(name, where):
            path = "mutate" if name == "mutate" else "validate"
            yield PodWebhook(numbered, path, region, failure_policy, calls(services.within(region)))

    def validating(within: Sequence[ServiceRegion]) -> PodCalls:
        return pod_calls.validating(within, policy_hash)

    def every(within: Sequence[ServiceRegion]) -> PodCalls:
        return pod_calls.all_calls(within, "no call is left out")

    validate = validating if policy_hash and not all_calls else every
    return (
        # It fails open: the validating webhook detects a missing rewrite.
        *found("mutate", all_regions(policy), "Ignore", every if all_calls else pod_calls.mutating),
        *found("validate-closed", closed, "Fail", validate),
        *found("validate-open", others, "Ignore", validate),
    )


def named(name: str, found: Iterable[NamespaceRegion]) -> Iterator[tuple[str, NamespaceRegion]]:
    """Name the webhooks of regions; a region with too many names for one expression becomes several."""
    small = (
        replace(region, names=NameSet.of(patterns, region.names.outside))
        for region in found
        for patterns in pieces(region.names.inside)
    )
    for number, region in enumerate(small, 1):
        yield f"{name}{'' if number == 1 else f'-{number}'}.podgate.io", region
