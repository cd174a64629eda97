"""A manual state of a variant on each store: from the entry to the store, to servers that read it, and its end."""

from collections.abc import Sequence

from tests.contract.counter_store import SECOND_US, HandClock, ask, clock, store
from tests.contract.store_steps import Store
from tests.core.reviewing import policy_of
from webhook.controller import OverrideEnforcer
from webhook.core.breaker import State, Transition, TransitionCause
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.overrides import apply_overrides, list_breaker_resets
from webhook.core.overrides.loading import OverridesDocument, load
from webhook.core.quota import CounterPlan, DeniedBy

__all__ = ["clock", "store"]

pytest_plugins = ("tests.redis_servers.fixtures",)

LOADED = policy_of("""\
- name: web
  match: {namespaces: [shop]}
  breaker: {quotaExceeded: {}}
  quota: {windows: [{window: 1m, hard: {pods: 5}}]}
  placement:
    shares: {openFor: 30s, variants: [
      {name: spot, weight: 8, nodeSelector: {kind: spot}},
      {name: arm, weight: 1, nodeSelector: {kind: arm}},
      {name: on-demand, weight: 1, nodeSelector: {kind: on-demand}}]}
""")


class Cluster:
    """The policy under the live entries of a document, and the leader that writes them into a store."""

    def __init__(self, store: Store, clock: HandClock) -> None:
        self.store, self.clock = store, clock
        self.document = OverridesDocument()
        self.compiled = CompiledPolicy(LOADED)
        self.found: list[Transition] = []
        self._enforcer = OverrideEnforcer(
            store, store.find_last_breaker, lambda: self.compiled, self._list_resets, self.found.append
        )

    def write(self, *bodies: str) -> None:
        """Write entries that end at 1970-02-11T17:00:00Z, an hour and more after the clock's start."""
        terms = "until: 1970-02-11T17:00:00Z, reason: INC-1"
        self.document = load("".join(f"- {{{body}, {terms}}}\n" for body in bodies).encode())

    async def run(self, seconds: float = 1) -> Sequence[str]:
        """Pass time; return the transitions that the leader and all ticks report."""
        self.clock.sleep(seconds)
        self.compiled = CompiledPolicy(apply_overrides(LOADED, self.document.list_live(self.clock.us)))
        self.found.clear()
        await self._enforcer.round()
        self.found += await self.store.tick(self.compiled.list_breakers())
        return [f"{move.service} {move.old} {move.new} {move.cause}" for move in self.found if move.is_change]

    def plan(self, name: str) -> CounterPlan:
        return next(plan for plan in self.compiled.list_breakers() if plan.service == name)

    def _list_resets(self) -> dict[str, int]:
        live = self.document.list_live(self.clock.us)
        return list_breaker_resets([entry for own in live.values() for entry in own], self.clock.us)


async def test_a_forced_variant_is_avoided_until_its_entry_ends(store: Store, clock: HandClock) -> None:
    cluster = Cluster(store, clock)
    cluster.write("service: web, variant: spot, breaker: ForcedOpen")
    assert await cluster.run() == ["web/spot CLOSED FORCED_OPEN forcedOpen"]
    view = store.find_last_breaker(cluster.plan("web/spot"))
    assert view is not None
    assert (view.state, view.reason) == (State.FORCED_OPEN, "INC-1")
    known = store.find_known_breaker(cluster.plan("web/spot"))
    assert known is not None, "a server avoids it without a call"
    assert known.state is State.FORCED_OPEN
    assert store.find_known_breaker(cluster.plan("web/arm")) is None
    assert (await ask(store, cluster.plan("web"), "a")).refused is None, "a variant denies nothing"
    assert (await ask(store, cluster.plan("web/spot"), "b")).refused is DeniedBy.BREAKER
    assert await cluster.run(2 * 3600) == ["web/spot FORCED_OPEN CLOSED released"]
    assert (await ask(store, cluster.plan("web/spot"), "c")).charged


async def test_a_removed_entry_ends_the_state_at_once(store: Store, clock: HandClock) -> None:
    cluster = Cluster(store, clock)
    cluster.write("service: web, variant: spot, breaker: ForcedClosed", "service: web, breaker: ForcedOpen")
    assert await cluster.run() == ["web CLOSED FORCED_OPEN forcedOpen", "web/spot CLOSED FORCED_CLOSED forcedClosed"]
    await store.record_outcomes(cluster.plan("web/spot"), [Outcomes(0, 3, 0)])
    assert await cluster.run(2) == [], "it stays closed whatever Pods find"
    cluster.write("service: web, breaker: ForcedOpen")
    assert await cluster.run() == ["web/spot FORCED_CLOSED CLOSED released"]


async def test_a_reset_is_applied_once(store: Store, clock: HandClock) -> None:
    cluster = Cluster(store, clock)
    await cluster.run()
    await store.record_outcomes(cluster.plan("web/spot"), [Outcomes(0, 1, 0)])
    assert await cluster.run() == ["web/spot CLOSED OPEN unschedulable"]
    clock.sleep(1)
    asked = clock.us // SECOND_US - 3_600_000
    reset_at = f"1970-02-11T16:{asked // 60:02d}:{asked % 60:02d}Z"
    cluster.write(f"service: web, variant: spot, breaker: Automatic, resetAt: {reset_at}")
    assert await cluster.run() == [f"web/spot OPEN CLOSED {TransitionCause.RESET}"]
    await store.record_outcomes(cluster.plan("web/spot"), [Outcomes(0, 1, 0)])
    assert await cluster.run() == ["web/spot CLOSED OPEN unschedulable"], "not reset again by the same entry"
    assert await cluster.run(30) == ["web/spot OPEN HALF_OPEN openForPassed"]
