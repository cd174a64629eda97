"""Compiled policy: a loaded one with its matcher, its services by name, what they count, and all plans worked out."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import msgspec

from webhook.core.kubernetes.pod import Pod
from webhook.core.overrides import Override, overridden
from webhook.core.placement import SERVICE_LABEL
from webhook.core.policy.matching import Matcher
from webhook.core.policy.model import LoadedPolicy, Policy, Service
from webhook.core.policy_spec import Mode, WhenOpen
from webhook.core.quota import CounterPlan
from webhook.core.quota.pod_cost import counted


class CompiledService(NamedTuple):
    """One service of a policy, as a review needs it. `counted`: the resources that its Pods are charged for."""

    service: Service
    plan: CounterPlan
    counted: tuple[str, ...]


class CompiledPolicy:
    """A policy, ready for reviews; never changed."""

    def __init__(self, loaded: LoadedPolicy, parts: Mapping[str, CompiledService] | None = None) -> None:
        """Take `parts`, what `compiling` yields of every service; without them they are made here."""
        if parts is None:
            parts = {one.service.name: one for one in compiling(loaded)}
        self.loaded = loaded
        self.policy = loaded.policy
        self.hash = loaded.hash
        self.parts = parts
        self.matcher = Matcher(loaded.policy)
        self.services: Mapping[str, Service] = {name: one.service for name, one in parts.items()}
        self.plans: Mapping[str, CounterPlan] = {name: one.plan for name, one in parts.items()}
        self.counted: Mapping[str, tuple[str, ...]] = {name: one.counted for name, one in parts.items()}

    def labelled(self, pod: Pod) -> Service | None:
        """Return the service that a Pod's label names, whoever wrote it."""
        return self.services.get(pod.labels.get(SERVICE_LABEL, ""))

    def believed(self, pod: Pod, namespace: str, namespace_labels: Mapping[str, str]) -> Service | None:
        """Return the service that a Pod's label names, where that service may own Pods of the namespace."""
        service = self.labelled(pod)
        if service is None or not self.matcher.may_own(service, namespace, namespace_labels):
            return None
        return service


def compiling(loaded: LoadedPolicy, only: Collection[str] | None = None) -> Iterator[CompiledService]:
    """Yield the services of a policy one by one, all of them or `only` these, so that others may have turns between."""
    pools = {pool.name: pool for pool in loaded.policy.pools}
    open_max = breakers_open_max(loaded.policy)
    for service in loaded.policy.services:
        if only is not None and service.name not in only:
            continue
        plan = CounterPlan.of(
            service,
            pools.get(service.pool or ""),
            open_max=open_max if _may_refuse(service) else None,
            forcing=loaded.forcings.get(service.name),
        )
        _ = service.placement_plan, service.degraded_placement_plan, service.range_plan  # kept by the service itself
        yield CompiledService(service, plan, counted(plan))


def compiling_under(
    base: CompiledPolicy, entries: Mapping[str, tuple[Override, ...]], known: Collection[str]
) -> Iterator[CompiledService]:
    """Yield the services of a policy that overrides make others than in `base`, but for those that are `known`."""
    loaded = overridden(base.loaded, entries)
    changed = {name for name in entries if name in base.services}.difference(known)
    if breakers_open_max(loaded.policy) != breakers_open_max(base.policy):
        changed.update(name for name, one in base.parts.items() if one.plan.breaker is not None)
    return compiling(loaded, changed)


def under(
    base: CompiledPolicy, entries: Mapping[str, tuple[Override, ...]], changed: Mapping[str, CompiledService]
) -> CompiledPolicy:
    """Return a policy as it is under overrides, with `changed` in place of what `base` has."""
    if not changed:
        return base
    parts = {**base.parts, **changed}
    policy = msgspec.structs.replace(base.policy, services=tuple(one.service for one in parts.values()))
    forcings = overridden(base.loaded, entries).forcings
    return CompiledPolicy(LoadedPolicy(policy, base.hash, forcings), parts)


def breakers_open_max(policy: Policy) -> int | None:
    """Return how many breakers breakerGuard lets open, None without it."""
    guard = policy.breaker_guard
    return None if guard is None else guard.open_max(sum(map(_may_refuse, policy.services)))


def _may_refuse(service: Service) -> bool:
    """Whether an open breaker of the service keeps Pods out; breakerGuard is for no others."""
    breaker = service.breaker
    return breaker is not None and service.modes.breaker is Mode.ENFORCE and breaker.when_open is not WhenOpen.DEGRADE
