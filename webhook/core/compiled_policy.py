"""Compiled policy: a loaded policy with its matcher, services by name, counted resources and plans."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, ClassVar, NamedTuple, Self

from msgspec.structs import replace

from webhook.core.breaker import Forcing
from webhook.core.kubernetes.pod import Pod
from webhook.core.lru_cache import LruCache, SelfFillingCache
from webhook.core.placement import SERVICE_LABEL
from webhook.core.policy.matching import Matcher
from webhook.core.policy.model import LoadedPolicy, Policy, Pool, QueuePause, Service
from webhook.core.policy.schedules import ScheduleState
from webhook.core.policy.targets import ReviewedPod, Target
from webhook.core.policy_fields import Mode, WhenOpen
from webhook.core.quota import CounterPlan, PoolGuarantees, group_guarantees
from webhook.core.quota.pod_cost import list_counted
from webhook.core.shares import SharesPlan

_POD_RESULTS_MAX = 1024
"""Two entries for each kind of new Pod: as its controller sends it, and as it was rewritten."""

_NAMESPACE_VALUES_MAX = 256
"""Services with the labels of a Namespace, one entry for each set of label values that they read."""


class CompiledService(NamedTuple):
    """One service of a policy, ready for reviews. `counted`: the resources that its Pods are charged for.

    `shares`: how its Pods are divided over variants, None if they are not.
    """

    service: Service
    plan: CounterPlan
    counted: tuple[str, ...]
    shares: SharesPlan | None = None


class CompiledException(NamedTuple):
    """A service as it is for a part of its Pods. `overrides`: the entries that make it so, as a JSON list."""

    target: Target
    part: CompiledService
    overrides: str = ""


_EXCEPTED_MAX = 256
"""Policies under exceptions, one entry for each set of exceptions that some Pod has."""

_NO_EXCEPTIONS: Mapping[str, tuple[CompiledException, ...]] = {}


class CompiledPolicy:
    """A policy, ready for reviews. Immutable except for its caches."""

    has_canary: ClassVar[bool] = False
    """Whether a candidate judges a part of the requests: `webhook.core.rollout.canary`."""

    exceptions: Mapping[str, tuple[CompiledException, ...]] = _NO_EXCEPTIONS
    """By namespace; of two for one Pod and service the first one counts."""
    is_selective = False
    """Whether a request is judged by more than its hash: there are exceptions, or a candidate."""

    def __init__(self, loaded: LoadedPolicy, parts: Mapping[str, CompiledService] | None = None) -> None:
        """Compile `loaded`. `parts`: its services by name, if they are already compiled."""
        if parts is None:
            parts = {part.service.name: part for part in compile_services(loaded)}
        self.loaded = loaded
        self.policy = loaded.policy
        self.hash = loaded.hash
        self.parts = parts
        self.pod_results = SelfFillingCache[tuple[str, bytes], dict[object, Any]](_POD_RESULTS_MAX, lambda _: {})
        """See `admission/pod_results.py`."""
        self._in_namespaces: LruCache[tuple[str, tuple[str | None, ...]], Service] = LruCache(_NAMESPACE_VALUES_MAX)
        self.matcher = Matcher(loaded.policy)
        self.services: Mapping[str, Service] = {name: part.service for name, part in parts.items()}
        self.plans: Mapping[str, CounterPlan] = {name: part.plan for name, part in parts.items()}
        self.counted: Mapping[str, tuple[str, ...]] = {name: part.counted for name, part in parts.items()}
        self.shares: Mapping[str, SharesPlan] = {
            name: part.shares for name, part in parts.items() if part.shares is not None
        }
        self.overrides = loaded.overrides
        self._excepted: LruCache[tuple[int, ...], CompiledPolicy] = LruCache(_EXCEPTED_MAX)
        """By the identities of the exceptions, which live as long as the policy."""

    def assigns_as(self, other: "CompiledPolicy") -> bool:
        """Return whether another one, compiled again, assigns each Pod to the same service and variant."""
        return self.policy == other.policy and not other.has_canary

    def may_assign_anew(self, namespace: str, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
        """Return whether a change of a namespace's labels may change the owner or the team of its Pods."""
        return self.matcher.may_differ(namespace, before, after)

    def list_shares(self) -> tuple[tuple[str, SharesPlan], ...]:
        """Return each service that divides its Pods, with how it does."""
        return tuple(self.shares.items())

    def list_breakers(self) -> tuple[CounterPlan, ...]:
        """Return the plans whose breakers live by time: those of the services, and of the variants of their shares."""
        of_variants = [
            variant.counters
            for plan in self.shares.values()
            for variant in plan.variants
            if variant.counters is not None
        ]
        return (*self.plans.values(), *of_variants)

    def resolve_service(self, service: Service, namespace_labels: Mapping[str, str]) -> Service:
        """Return a service with the Namespace labels that it reads replaced by their values."""
        if not service.namespace_keys:
            return service
        key = service.name, tuple(namespace_labels.get(label) for label in service.namespace_keys)
        found = self._in_namespaces.get(key)
        if found is None:
            found = service.resolve_namespace(namespace_labels)
            self._in_namespaces.keep(key, found)
        return found

    def with_exceptions(self, exceptions: Sequence[CompiledException]) -> Self:
        """Return the policy with exceptions; the policy itself without any."""
        if not exceptions:
            return self
        by_namespace: dict[str, tuple[CompiledException, ...]] = {}
        for found in exceptions:
            namespace = found.target.namespace
            by_namespace[namespace] = (*by_namespace.get(namespace, ()), found)
        made = copy(self)
        made.exceptions, made.is_selective = by_namespace, True
        made._excepted = LruCache(_EXCEPTED_MAX)  # noqa: SLF001  own
        return made

    def apply_exceptions(self, pod: ReviewedPod) -> "CompiledPolicy":
        """Return the policy for one Pod, in which the services that have an exception for it are replaced."""
        found: dict[str, CompiledException] = {}
        for exception in self.exceptions.get(pod.namespace, ()):
            name = exception.part.service.name
            if name not in found and pod.is_in(exception.target):
                found[name] = exception
        if not found:
            return self
        key = tuple(map(id, found.values()))
        known = self._excepted.get(key)
        if known is None:
            known = self._replace_parts(found)
            self._excepted.keep(key, known)
        return known

    def _replace_parts(self, found: Mapping[str, CompiledException]) -> "CompiledPolicy":
        parts = {**self.parts, **{name: exception.part for name, exception in found.items()}}
        services = tuple(parts[service.name].service for service in self.policy.services)
        overrides = {**self.overrides, **{name: exception.overrides for name, exception in found.items()}}
        policy = replace(self.policy, services=services)
        return CompiledPolicy(replace(self.loaded, policy=policy, overrides=overrides), parts)

    def choose_by_hash(self, policy_hash: str) -> "CompiledPolicy":  # noqa: ARG002  a policy with a canary reads it
        """Return the policy that judges a Pod which carries this hash."""
        return self

    def find_by_label(self, pod: Pod) -> Service | None:
        """Return the service that a Pod's label names; a tenant may have written the label."""
        labels = pod.metadata.labels
        return self.services.get(labels.get(SERVICE_LABEL, "")) if labels else None

    def find_owner_by_label(self, pod: Pod, namespace: str, namespace_labels: Mapping[str, str]) -> Service | None:
        """Return the service that a Pod's label names, if that service may own Pods in the namespace."""
        service = self.find_by_label(pod)
        if service is None or not self.matcher.may_own(service, namespace, namespace_labels):
            return None
        return service


def compile_services(
    loaded: LoadedPolicy, only: Collection[str] | None = None, former: CompiledPolicy | None = None
) -> Iterator[CompiledService]:
    """Yield the compiled services of a policy, all or `only` these; the caller may pause between two of them.

    `former`: a policy whose compiled services stay where nothing that they are compiled from differs.
    """
    policy, find_kept = _PolicyInputs(loaded), _prepare_search(former)
    for service in loaded.policy.services:
        if only is None or service.name in only:
            inputs = policy.list_inputs(service)
            yield find_kept(service, inputs) or _compile_service(service, inputs)


class _ServiceInputs(NamedTuple):
    """What a service is compiled from, besides itself."""

    pool: Pool | None
    open_max: int | None
    forcing: Forcing | None
    rank: int
    pause: QueuePause | None
    guarantees: PoolGuarantees | None
    schedule: ScheduleState | None
    forcings: Mapping[str, Forcing]
    """Of the breakers of its variants, and of others; empty without variants."""


class _PolicyInputs:
    """What the services of a policy are compiled from, besides themselves."""

    def __init__(self, loaded: LoadedPolicy) -> None:
        self._loaded = loaded
        self._pools = {pool.name: pool for pool in loaded.policy.pools}
        self._open_max = compute_breakers_open_max(loaded.policy)
        classes = sorted(loaded.policy.sla_classes, key=lambda sla_class: -sla_class.priority)
        self._ranks = {sla_class.name: rank for rank, sla_class in enumerate(classes)}
        self._guarantees = group_guarantees(loaded.members or loaded.policy.services)

    def list_inputs(self, service: Service) -> _ServiceInputs:
        loaded, name, pool = self._loaded, service.name, service.pool or ""
        return _ServiceInputs(
            self._pools.get(pool),
            self._open_max if _may_refuse(service) else None,
            loaded.forcings.get(name),
            self._ranks[service.sla_class],
            loaded.pauses.get(name),
            self._guarantees.get(pool),
            loaded.schedules.get(name),
            loaded.forcings if service.variants else _NO_FORCINGS,
        )


def _prepare_search(former: CompiledPolicy | None) -> Callable[[Service, _ServiceInputs], CompiledService | None]:
    """Return the search for the compiled form of a service in a policy: found if it is compiled from the same."""
    if former is None:
        return lambda *_: None
    parts, policy = former.parts, _PolicyInputs(former.loaded)

    def find(service: Service, inputs: _ServiceInputs) -> CompiledService | None:
        known = parts.get(service.name)
        if known is None or known.service is not service or policy.list_inputs(service) != inputs:
            return None
        return known

    return find


_NO_FORCINGS: Mapping[str, Forcing] = {}


def _compile_service(service: Service, inputs: _ServiceInputs) -> CompiledService:
    plan = CounterPlan.from_service(
        service,
        inputs.pool,
        open_max=inputs.open_max,
        forcing=inputs.forcing,
        rank=inputs.rank,
        pause=inputs.pause,
        guarantees=inputs.guarantees,
    )
    if inputs.schedule is not None:
        plan = replace(plan, schedule=inputs.schedule)
    # Computed here and cached on the service, so that no review computes them.
    _ = service.placement_plan, service.degraded_placement_plan, service.range_plan, service.namespace_keys
    _ = service.rule_plan, service.breaker_variants
    for variant in service.variants.values():
        _ = variant.placement_plan, variant.degraded_placement_plan
    return CompiledService(service, plan, list_counted(plan), SharesPlan.from_service(service, inputs.forcings))


def find_changed_services(base: CompiledPolicy, loaded: LoadedPolicy, named: Collection[str]) -> set[str]:
    """Return the services of `base` that differ in `loaded`, which is `base` with overrides of the `named` services."""
    changed = {name for name in named if name in base.services}
    if compute_breakers_open_max(loaded.policy) != compute_breakers_open_max(base.policy):
        changed.update(name for name, part in base.parts.items() if part.plan.breaker is not None)
    return changed


def replace_services(
    base: CompiledPolicy, loaded: LoadedPolicy, changed: Mapping[str, CompiledService]
) -> CompiledPolicy:
    """Return `base` with the `changed` services replaced by those of `loaded`."""
    if not changed:
        return base
    parts = {**base.parts, **changed}
    policy = replace(base.policy, services=tuple(part.service for part in parts.values()))
    return CompiledPolicy(replace(loaded, policy=policy), parts)


def compute_breakers_open_max(policy: Policy) -> int | None:
    """Return how many breakers may be open at one time by breakerGuard; None without it. Every plan contains it."""
    guard = policy.breaker_guard
    return None if guard is None else guard.compute_open_max(count_refusing(policy.services))


def count_refusing(services: Iterable[Service]) -> int:
    """Return how many services have a breaker that denies Pods while it is open."""
    return sum(map(_may_refuse, services))


def _may_refuse(service: Service) -> bool:
    """Return whether an open breaker of the service denies Pods; breakerGuard counts only such breakers."""
    breaker = service.breaker
    return breaker is not None and service.modes.breaker is Mode.ENFORCE and breaker.when_open is not WhenOpen.DEGRADE
