"""Webhook configurations while a candidate is tried: the API server calls for Pods that either policy applies to."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from webhook.core.policy.model import Exemptions, LoadedPolicy, Policy, Unmatched
from webhook.core.webhook_configurations.client import Json
from webhook.core.webhook_configurations.live import ConfigurationName, render_wanted_webhooks
from webhook.core.webhook_configurations.name_sets import is_covered


def render_either_webhooks(
    stable: LoadedPolicy, candidate: LoadedPolicy | None, *, all_calls: bool
) -> Mapping[ConfigurationName, Sequence[Json]]:
    """Return the webhooks of each configuration for both policies; TooManyEntriesError as for one.

    Where both need the same calls they stay as they are: Pods of the candidate carry its hash, so no call for them is
    left out. Else no call is left out.
    """
    wanted = render_wanted_webhooks(stable, all_calls=all_calls)
    if candidate is None:
        return wanted
    if wanted == render_wanted_webhooks(LoadedPolicy(candidate.policy, stable.hash), all_calls=all_calls):
        return wanted
    both = LoadedPolicy(unite_policies(stable.policy, candidate.policy), stable.hash)
    return render_wanted_webhooks(both, all_calls=True)


def unite_policies(stable: Policy, candidate: Policy) -> Policy:
    """Return a policy that applies where either does; it is only for rendering, since names of services are twice."""
    former = {service.name: service for service in stable.services}
    changed = [service for service in candidate.services if former.get(service.name) != service]
    unmatched = stable.unmatched if candidate.unmatched is Unmatched.ADMIT else candidate.unmatched
    exemptions = _intersect_exemptions(stable.exemptions, candidate.exemptions)
    parts = stable.parts or candidate.parts
    return replace(
        stable,
        services=(*stable.services, *changed),
        unmatched=unmatched,
        exemptions=exemptions,
        parts=parts,
        workloads=tuple(dict.fromkeys((*stable.workloads, *candidate.workloads))),
    )


def _intersect_exemptions(one: Exemptions, other: Exemptions) -> Exemptions:
    """Return what both exempt; of patterns that overlap in part, nothing."""
    return Exemptions(
        namespaces=tuple(
            dict.fromkeys(
                (
                    *(name for name in one.namespaces if is_covered(name, frozenset(other.namespaces))),
                    *(name for name in other.namespaces if is_covered(name, frozenset(one.namespaces))),
                )
            )
        ),
        usernames=_intersect(one.usernames, other.usernames),
        runtime_classes=_intersect(one.runtime_classes, other.runtime_classes),
        daemon_sets=one.daemon_sets and other.daemon_sets,
    )


def _intersect(names: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    kept = frozenset(others)
    return tuple(name for name in names if name in kept)
