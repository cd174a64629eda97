"""Decisions are counted by policy and sent together; nothing is lost while the store is away."""

from msgspec.structs import replace

from tests.core.reviewing import body, pod, policy_of
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.memory_rollout_counts import MemoryRolloutCounts
from webhook.adapters.memory_store import MemoryStore
from webhook.core.admission.decision import Half
from webhook.errors import StoreUnavailableError
from webhook.interceptor import Interceptor
from webhook.observers import Observers
from webhook.policy_in_force.decision_counts import DecisionCounts

WEB = "- {name: web, match: {anyNamespace: true}, quota: {windows: [{window: 1m, hard: {pods: 2}}]}}"


class Away(MemoryRolloutCounts):
    """Counts that a switch makes unavailable."""

    is_away = False

    async def add(self, policy_hash: str, counts: object) -> None:
        if self.is_away:
            raise StoreUnavailableError("no answer")
        await super().add(policy_hash, counts)  # type: ignore[arg-type]  # as it was given


async def test_new_pods_and_denials_are_counted_by_policy_once_each() -> None:
    clock = VirtualClock()
    shared = Away(clock)
    counts = DecisionCounts(shared)
    loaded = replace(policy_of(WEB), hash="a" * 16)
    observers = Observers(counts)
    interceptor = Interceptor(FixedPolicy(loaded, clock), MemoryStore(clock), FixedNamespaces(), observers)
    shared.is_away = True
    for number in range(4):
        made = pod(
            uid=f"u{number}", labels={"podgate.io/service": "web"}, annotations={"podgate.io/policy-hash": "a" * 16}
        )
        await interceptor.review(Half.VALIDATE, body(object=made, dryRun=True))
        await interceptor.review(Half.MUTATE, body(object=pod()))
        await interceptor.review(Half.VALIDATE, body(object=made))
        await interceptor.review(Half.VALIDATE, body(object=made, oldObject=made, operation="UPDATE"))
        await counts.send()
    assert counts.error
    shared.is_away = False
    await counts.send()
    assert await shared.read("a" * 16, 0) == {"reviews": 4, "denials": 2}
    assert counts.error == ""
    observers.leave(counts)
    await interceptor.review(Half.VALIDATE, body(object=pod(uid="u9")))
    await counts.send()
    assert await shared.read("a" * 16, 0) == {"reviews": 4, "denials": 2}
