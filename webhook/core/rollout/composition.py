"""Composition of two policies during a canary: quotas, pools and breakers move only as whole services and pools.

Each Pod is judged by one of the two policies. Its service's counters are shared by all of its Pods, so both policies
have the same limits, pool, SLA class and breaker for a service: the candidate's if the canary has reached the service
as a whole, else those in force. A guarantee holds only in the pool that was written with it.

The load of nodes is one table too, of the sources in force; without any, of the candidate's.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.compiled_policy import count_refusing
from webhook.core.policy.model import BreakerGuard, LoadedPolicy, Policy, Pool, Service, SlaClass
from webhook.core.policy_fields.rollout import CanaryBy
from webhook.core.policy_fields.scheduling import WhenUnknown
from webhook.core.rollout.selection import Reach


class SharedBreakerGuard(BreakerGuard, frozen=True):
    """The guard in force, for the breakers of both policies: both have the same limit."""

    breakers: int = 0

    def compute_open_max(self, breakers: int) -> int:  # noqa: ARG002  each policy has only some of them
        return super().compute_open_max(self.breakers)


class Composition(Struct, frozen=True):
    """Two policies, each with the hash of its document.

    `base` judges what the canary has not reached, `canary` the rest. `added`: services that only the candidate has,
    whose Pods and breakers count too.
    """

    base: LoadedPolicy
    canary: LoadedPolicy
    added: tuple[Service, ...] = ()


def compose(stable: LoadedPolicy, candidate: LoadedPolicy, reach: Reach) -> Composition:
    """Return both policies with the same counters for each service that both have."""
    has_moved = _build_move_test(stable.policy, candidate, reach)
    find_source = _build_source_search(stable.policy, candidate.policy, has_moved)
    pools = _merge_pools(stable.policy, candidate.policy, has_moved)
    classes = _merge_classes(stable.policy.sla_classes, candidate.policy.sla_classes)

    former = {service.name for service in stable.policy.services}
    nodes = stable.policy.nodes or candidate.policy.nodes

    def take(service: Service) -> Service:
        taken = _move_counters(service, find_source(service))
        has_its_sources = service.name in former or nodes == candidate.policy.nodes
        return taken if has_its_sources else _admit_unknown_nodes(taken)

    def adapt(policy: Policy) -> Policy:
        services = tuple(map(take, policy.services))
        return replace(policy, services=services, pools=pools, sla_classes=classes, nodes=nodes)

    base, canary = adapt(stable.policy), adapt(candidate.policy)
    added = tuple(service for service in canary.services if service.name not in former)
    members = (*base.services, *added)
    guard = stable.policy.breaker_guard
    if guard is not None:
        breakers = count_refusing(members)
        guard = SharedBreakerGuard(guard.max_open_percent, breakers)
    base, canary = replace(base, breaker_guard=guard), replace(canary, breaker_guard=guard)
    return Composition(
        replace(stable, policy=base, members=members), replace(candidate, policy=canary, members=members), added
    )


def _build_source_search(
    stable: Policy, candidate: Policy, has_moved: Callable[[str], bool]
) -> Callable[[Service], Service]:
    """Return the search for the version of a service whose counters hold.

    Of a service that this policy does not have, it is the other's, without a guarantee in a pool that it has: its
    guarantees would no longer fit into it.
    """
    in_force, moved = (
        ({service.name: service for service in policy.services}, {pool.name for pool in policy.pools})
        for policy in (stable, candidate)
    )

    def find(service: Service) -> Service:
        services, pools = moved if has_moved(service.name) else in_force
        found = services.get(service.name)
        if found is not None:
            return found
        return service if service.guaranteed is None or service.pool not in pools else replace(service, guaranteed=None)

    return find


def _move_counters(service: Service, source: Service) -> Service:
    """Return a service with the counters of another version of it."""
    if service is source:
        return service
    return replace(
        service,
        pool=source.pool,
        guaranteed=source.guaranteed,
        sla_class=source.sla_class,
        quota=source.quota,
        breaker=source.breaker,
        modes=replace(service.modes, quota=source.modes.quota, breaker=source.modes.breaker),
    )


def _admit_unknown_nodes(service: Service) -> Service:
    """Return a new service that is refused no node for want of load: it was written for other sources of load."""
    rules = service.scheduling
    if rules is None or rules.when_unknown is WhenUnknown.ADMIT:
        return service
    return replace(service, scheduling=replace(rules, when_unknown=WhenUnknown.ADMIT))


def _build_move_test(stable: Policy, candidate: LoadedPolicy, reach: Reach) -> Callable[[str], bool]:
    """Return whether the counters of a service have moved to the candidate."""
    if reach.by is not CanaryBy.SERVICE:
        return lambda _: False
    keys = build_service_keys(stable, candidate.policy)
    moved = {name for name, key in keys.items() if reach.includes(candidate.hash, "", key)}
    return moved.__contains__


def build_service_keys(stable: Policy, candidate: Policy) -> Mapping[str, str]:
    """Return by service the key by which it moves: services with a pool in common, in either policy, move together."""
    leaders: dict[str, str] = {}

    def find_leader(tag: str) -> str:
        while leaders.setdefault(tag, tag) != tag:
            tag = leaders[tag]
        return tag

    both = (*stable.services, *candidate.services)
    for service in both:
        one, other = sorted((find_leader(f"service {service.name}"), find_leader(f"tag {service.tag}")))
        leaders[other] = one
    return {service.name: find_leader(f"service {service.name}") for service in both}


def _merge_pools(stable: Policy, candidate: Policy, has_moved: Callable[[str], bool]) -> tuple[Pool, ...]:
    """Return the pools of both; one that both have is the candidate's if its members have moved."""
    services = (*stable.services, *candidate.services)
    moved = {service.pool for service in services if service.pool and has_moved(service.name)}
    old_pools, new_pools = {pool.name: pool for pool in stable.pools}, {pool.name: pool for pool in candidate.pools}
    names = dict.fromkeys((*old_pools, *new_pools))
    first, second = new_pools, old_pools
    return tuple(
        (first.get(name) or second[name]) if name in moved else (second.get(name) or first[name]) for name in names
    )


def _merge_classes(stable: Iterable[SlaClass], candidate: Iterable[SlaClass]) -> tuple[SlaClass, ...]:
    """Return the SLA classes in force, with those that only the candidate has."""
    known = {sla_class.name: sla_class for sla_class in (*candidate, *stable)}
    return tuple(known.values())
