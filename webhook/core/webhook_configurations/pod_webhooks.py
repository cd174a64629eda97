"""Webhooks of Pods: one for each region, with the calls that it makes and leaves out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from webhook.core.policy.model import Policy
from webhook.core.webhook_configurations import pod_calls
from webhook.core.webhook_configurations.cel import split_texts
from webhook.core.webhook_configurations.name_sets import NameSet
from webhook.core.webhook_configurations.namespace_regions import NamespaceRegion, list_all_regions, list_regions
from webhook.core.webhook_configurations.pod_calls import PodCalls
from webhook.core.webhook_configurations.service_regions import ServiceRegion, ServiceRegions


class PodWebhook(NamedTuple):
    """A webhook of Pods; `calls` are those for new Pods."""

    name: str
    path: str
    region: NamespaceRegion
    failure_policy: str
    calls: PodCalls


def make_pod_webhooks(policy: Policy, policy_hash: str, *, all_calls: bool) -> tuple[PodWebhook, ...]:
    """Return the webhooks of a policy, first the mutating ones.

    Without the hash of the policy's document no validating call is left out, with `all_calls` no call at all.
    TooManyEntriesError: the policy's namespaceSelectors would need too many webhooks.
    """
    closed, others = list_regions(policy)
    services = ServiceRegions(policy.services)

    def make(
        name: str, where: Iterable[NamespaceRegion], failure_policy: str, calls: Callable[..., PodCalls]
    ) -> Iterator[PodWebhook]:
        for numbered, region in name_webhooks(name, where):
            path = "mutate" if name == "mutate" else "validate"
            yield PodWebhook(numbered, path, region, failure_policy, calls(services.find_services(region)))

    def make_validating(within: Sequence[ServiceRegion]) -> PodCalls:
        return pod_calls.make_validating_calls(within, policy_hash)

    def make_every(within: Sequence[ServiceRegion]) -> PodCalls:
        return pod_calls.make_all_calls(within, "no call is left out")

    validate = make_validating if policy_hash and not all_calls else make_every
    return (
        # It fails open: the validating webhook detects a missing rewrite.
        *make("mutate", list_all_regions(policy), "Ignore", make_every if all_calls else pod_calls.make_mutating_calls),
        *make("validate-closed", closed, "Fail", validate),
        *make("validate-open", others, "Ignore", validate),
    )


def name_webhooks(name: str, found: Iterable[NamespaceRegion]) -> Iterator[tuple[str, NamespaceRegion]]:
    """Name the webhooks of regions; a region with too many names for one expression becomes several."""
    small = (
        replace(region, names=NameSet.from_patterns(patterns, region.names.outside))
        for region in found
        for patterns in split_texts(region.names.inside)
    )
    for number, region in enumerate(small, 1):
        yield f"{name}{'' if number == 1 else f'-{number}'}.podgate.io", region
