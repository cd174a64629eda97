"""Policy of a replay; in Redis, its counters are limited to one cluster."""

from pathlib import Path

from msgspec.structs import replace

from webhook.core.document import Purpose
from webhook.core.policy.model import LoadedPolicy, Policy
from webhook.core.policy_spec import Scope
from webhook.offline.policy_argument import load_policy


def load_replay_policy(path: Path, *, is_shared: bool) -> LoadedPolicy:
    """Read a policy; UserError if it is invalid. `is_shared`: the counters are in a Redis that a fleet may use too."""
    loaded = load_policy(path, Purpose.REPLAY)
    return replace(loaded, policy=_of_one_cluster(loaded.policy)) if is_shared else loaded


def _of_one_cluster(policy: Policy) -> Policy:
    """Return the policy without `scope: Fleet`: a replay must not change what a fleet counts."""
    return replace(
        policy,
        pools=tuple(replace(pool, scope=Scope.CLUSTER) for pool in policy.pools),
        services=tuple(
            replace(service, quota=replace(service.quota, scope=Scope.CLUSTER)) if service.quota else service
            for service in policy.services
        ),
    )
