"""Environment of a replay: its virtual clock, store, policies and Namespace labels, all set by events."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from webhook.commands.policy_argument import load_policy
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose
from webhook.core.policy.model import LoadedPolicy, Policy
from webhook.core.policy_fields import Scope
from webhook.ports import Clock, NamespaceLabels, PolicySource, SlotStore
from webhook.replay.store_outage import ReplayStore


def load_replay_policy(path: Path, *, is_shared: bool) -> LoadedPolicy:
    """Read a policy; UserError if it is invalid. `is_shared`: the counters are in a Redis that a fleet may use too."""
    loaded = load_policy(path, Purpose.REPLAY)
    return replace(loaded, policy=_limit_to_cluster(loaded.policy)) if is_shared else loaded


def _limit_to_cluster(policy: Policy) -> Policy:
    """Return the policy without `scope: Fleet`: a replay must not change what a fleet counts."""
    return replace(
        policy,
        pools=tuple(replace(pool, scope=Scope.CLUSTER) for pool in policy.pools),
        services=tuple(
            replace(service, quota=replace(service.quota, scope=Scope.CLUSTER)) if service.quota else service
            for service in policy.services
        ),
    )


class SettableClock(Clock, Protocol):
    """A clock that only events advance."""

    def set(self, at_us: int) -> None:
        """Set the time to `at_us`, which is never earlier than the current time."""
        ...


class SettablePolicy(PolicySource, Protocol):
    """A policy source that only events change."""

    @property
    def next_change_us(self) -> int | None:
        """When a schedule changes limits next; None without one."""
        ...

    def get_current(self) -> CompiledPolicy:
        """Return the current policy."""
        ...

    def set(self, loaded: LoadedPolicy) -> None:
        """Replace the current policy."""
        ...


class SettableNamespaces(NamespaceLabels, Protocol):
    """Namespace labels that only events change."""

    def update(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        """Set the labels of some Namespaces."""
        ...


class ReplayEnvironment(Protocol):
    """Clock, stores, policies and Namespace labels of a replay."""

    @property
    def clock(self) -> SettableClock: ...

    @property
    def policies(self) -> SettablePolicy: ...

    @property
    def namespaces(self) -> SettableNamespaces: ...

    @property
    def store(self) -> ReplayStore: ...

    @property
    def slots(self) -> SlotStore: ...


async def enforce_live_limits(policy: CompiledPolicy, store: ReplayStore) -> None:
    """Let limits on live Pods hold as in a cluster whose Pods have been listed: here there are none."""
    for plan in policy.plans.values():
        if plan.standing is not None:
            await store.mark_complete(plan, ())
        if plan.pool_standing is not None:
            await store.mark_pool_complete(plan)
