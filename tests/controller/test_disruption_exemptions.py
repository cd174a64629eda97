"""Controllers that lose Pods to a disruption are exempt for a while: their replacements trip no breaker."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.controller.controller_simulation import World, at, compiled, pod
from tests.controller.test_pod_tracker import until
from webhook.controller import disruption_exemptions
from webhook.core.breaker import State
from webhook.core.kubernetes.pod import OwnerReference, PodCondition
from webhook.core.quota import Acquire, CounterPlan

POLICY = """
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  quota: {windows: [{window: 24h, hard: {pods: 4}}]}
  breaker: {quotaExceeded: {count: 2, within: 1m}}
"""


class Losing(World):
    """A world that notes who is excused."""

    def __init__(self, services: str = POLICY) -> None:
        super().__init__(services)
        self.heard: list[tuple[str, list[str]]] = []
        excuse = self.store.suppress_quota_events

        async def listen(plan: CounterPlan, sources: Sequence[str]) -> None:
            self.heard.append((plan.service, sorted(sources)))
            await excuse(plan, sources)

        self.store.suppress_quota_events = listen  # type: ignore[method-assign]  a spy

    async def run(self, *controllers: str, **fields: Any) -> None:
        """Create a Pod for each of these controllers."""
        for uid in controllers:
            await self.create(f"of-{uid}", owners=(owner(uid),), **fields)

    def lose(self, *controllers: str, reason: str = "DeletionByTaintManager") -> None:
        """Let the cluster take their Pods away."""
        for uid in controllers:
            gone = PodCondition("DisruptionTarget", "True", reason, at(self.clock.now_us()))
            self.cluster.update(f"of-{uid}", conditions=(gone,))

    async def replace(self, uid: str, number: int = 1) -> bool:
        """Ask for another Pod as a controller does; say whether it was let in."""
        asked = Acquire(self.plan, "shop", f"new-{uid}-{number}", {"pods": 1}, f"controller:{uid}", name="n")
        return (await self.store.acquire(asked)).refused is None

    async def state(self) -> State:
        found = await self.store.snapshot(self.plan)
        assert found.breaker is not None
        return found.breaker.state


def owner(uid: str, *, controller: bool = True) -> OwnerReference:
    return OwnerReference("apps/v1", "ReplicaSet", f"rs-{uid}", uid, controller)


async def test_replacements_of_lost_pods_are_charged_and_trip_nothing() -> None:
    world = Losing()
    await world.run("a", "b", "c")
    await world.all()
    world.lose("a", "b", "c")
    await world.all()
    assert await world.replace("a")
    assert not any([await world.replace(uid, number) for number in (2, 3) for uid in "abc"])
    assert (await world.used(), await world.state()) == (4, State.CLOSED)
    assert not any([await world.replace(uid) for uid in "de"])
    assert await world.state() is State.OPEN, "others' refusals count"


async def test_it_is_reported_beside_the_sightings_not_behind_them() -> None:
    world = Losing()
    await world.run("a")
    await world.all()
    world.lose("a")
    await world.watch_all()
    await world.controller._disruptions.send()
    assert (world.heard, world.told.excused) == ([("web", ["controller:a"])], {"web": 1})


async def test_who_loses_many_is_reported_once_in_a_while() -> None:
    world = Losing()
    await world.run("a", "b")
    await world.create("more", owners=(owner("a"),))
    await world.all()
    world.lose("a", "b")
    await world.all()
    world.wait(60)
    world.cluster.update("more", phase="Failed", reason="Evicted")
    await world.all()
    assert world.heard == [("web", ["controller:a", "controller:b"])]
    world.wait(240)
    await world.create("again", owners=(owner("a"),))
    world.cluster.update("again", reason="NodeLost")
    await world.all()
    assert world.heard[1:] == [("web", ["controller:a"])]


async def test_a_list_reports_of_fresh_losses_only() -> None:
    world = Losing()
    await world.run("old")
    world.lose("old")
    world.wait(300)
    await world.run("new")
    world.lose("new")
    await world.create("untimed", owners=(owner("untimed"),))
    world.cluster.update("untimed", phase="Failed", reason="Evicted")
    await world.all()
    assert world.heard == [("web", ["controller:new"])]


async def test_only_the_controller_of_a_pod_of_the_service_is_excused() -> None:
    quiet = "- {name: quiet, match: {namespaces: [shop]}}\n"
    world = Losing(POLICY + quiet)
    await world.create("loose")
    await world.create("helper", owners=(owner("helper", controller=False),))
    world.cluster.create(pod("of-quiet", labels={"app": "quiet"}, owners=(owner("quiet"),)))
    forged = {"podgate.io/service": "web"}
    world.cluster.create(pod("of-forged", labels=forged, owners=(owner("forged"),), namespace="elsewhere"))
    await world.all()
    for uid in ("loose", "helper", "of-quiet", "of-forged"):
        world.cluster.update(uid, reason="Evicted")
    world.cluster.update("helper", phase="Failed")
    await world.all()
    assert world.heard == []


async def test_while_the_store_is_away_it_is_reported_again() -> None:
    world = Losing()
    await world.run("a", "b")
    await world.all()
    world.answer(store=False)
    world.lose("a")
    await world.watch_all()
    await world.tell_starts()
    world.lose("b")
    await world.watch_all()
    world.answer(store=True)
    await world.tell_starts()
    assert (world.heard, world.told.excused) == ([("web", ["controller:a", "controller:b"])], {"web": 2})


async def test_a_service_that_has_left_the_policy_is_not_reported() -> None:
    world = Losing()
    await world.run("a")
    await world.all()
    world.lose("a")
    world.answer(store=False)
    await world.watch_all()
    await world.tell_starts()
    world.policy = compiled(POLICY.replace("name: web", "name: new"))
    world.watch.list_again()
    world.answer(store=True)
    await world.watch_all()
    await world.tell_starts()
    assert [service for service, _ in world.heard] == ["new"]


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disruption_exemptions, "MOST", 2)
    world = Losing()
    await world.run("a", "b", "c")
    await world.all()
    world.lose("a", "b", "c")
    await world.all()
    assert [*world.controller._disruptions._suppressed_us] == [("web", "controller:c")]


async def test_the_loop_does_it_by_itself() -> None:
    world = Losing()
    running = asyncio.create_task(world.controller.run())
    await until(lambda: world.watch.taker is not None)
    await world.run("a")
    await world.watch_all()
    world.lose("a")
    await world.watch_all()
    await until(lambda: world.told.excused == {"web": 1})
    running.cancel()
    await asyncio.wait([running])
