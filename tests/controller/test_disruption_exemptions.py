"""Controllers that lose Pods to a disruption are exempt for a while: their replacements trip no breaker."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.controller.controller_simulation import ControllerSimulation, compile_policy, format_moment, pod
from tests.controller.pod_lifecycle import wait_until
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


class DisruptionSimulation(ControllerSimulation):
    """A simulation that records the exempted controllers."""

    def __init__(self, services: str = POLICY) -> None:
        super().__init__(services)
        self.recorded: list[tuple[str, list[str]]] = []
        suppress = self.store.suppress_quota_events

        async def record(plan: CounterPlan, sources: Sequence[str]) -> None:
            self.recorded.append((plan.service, sorted(sources)))
            await suppress(plan, sources)

        self.store.suppress_quota_events = record  # type: ignore[method-assign]  a spy

    async def run(self, *controllers: str, **fields: Any) -> None:
        """Create a Pod for each of these controllers."""
        for uid in controllers:
            await self.create(f"of-{uid}", owners=(owner(uid),), **fields)

    def lose(self, *controllers: str, reason: str = "DeletionByTaintManager") -> None:
        """Mark their Pods as disrupted."""
        for uid in controllers:
            disrupted = PodCondition("DisruptionTarget", "True", reason, format_moment(self.clock.now_us()))
            self.cluster.update(f"of-{uid}", conditions=(disrupted,))

    async def replace(self, uid: str, number: int = 1) -> bool:
        """Request another Pod as a controller does; return whether it was admitted."""
        request = Acquire(self.plan, "shop", f"new-{uid}-{number}", {"pods": 1}, f"controller:{uid}", name="n")
        return (await self.store.acquire(request)).refused is None

    async def read_state(self) -> State:
        snapshot = await self.store.snapshot(self.plan)
        assert snapshot.breaker is not None
        return snapshot.breaker.state


def owner(uid: str, *, controller: bool = True) -> OwnerReference:
    return OwnerReference("apps/v1", "ReplicaSet", f"rs-{uid}", uid, controller)


async def test_replacements_of_lost_pods_are_charged_and_trip_no_breaker() -> None:
    simulation = DisruptionSimulation()
    await simulation.run("a", "b", "c")
    await simulation.run_all()
    simulation.lose("a", "b", "c")
    await simulation.run_all()
    assert await simulation.replace("a")
    assert not any([await simulation.replace(uid, number) for number in (2, 3) for uid in "abc"])
    assert (await simulation.count_used(), await simulation.read_state()) == (4, State.CLOSED)
    assert not any([await simulation.replace(uid) for uid in "de"])
    assert await simulation.read_state() is State.OPEN, "denials of other controllers count"


async def test_exemptions_are_reported_independently_of_sightings() -> None:
    simulation = DisruptionSimulation()
    await simulation.run("a")
    await simulation.run_all()
    simulation.lose("a")
    await simulation.watch_all()
    await simulation.controller._disruptions.send()
    assert (simulation.recorded, simulation.reported.exempted) == ([("web", ["controller:a"])], {"web": 1})


async def test_controller_that_loses_many_pods_is_reported_once_per_interval() -> None:
    simulation = DisruptionSimulation()
    await simulation.run("a", "b")
    await simulation.create("more", owners=(owner("a"),))
    await simulation.run_all()
    simulation.lose("a", "b")
    await simulation.run_all()
    simulation.wait(60)
    simulation.cluster.update("more", phase="Failed", reason="Evicted")
    await simulation.run_all()
    assert simulation.recorded == [("web", ["controller:a", "controller:b"])]
    simulation.wait(240)
    await simulation.create("again", owners=(owner("a"),))
    simulation.cluster.update("again", reason="NodeLost")
    await simulation.run_all()
    assert simulation.recorded[1:] == [("web", ["controller:a"])]


async def test_list_reports_only_recent_losses() -> None:
    simulation = DisruptionSimulation()
    await simulation.run("old")
    simulation.lose("old")
    simulation.wait(300)
    await simulation.run("new")
    simulation.lose("new")
    await simulation.create("untimed", owners=(owner("untimed"),))
    simulation.cluster.update("untimed", phase="Failed", reason="Evicted")
    await simulation.run_all()
    assert simulation.recorded == [("web", ["controller:new"])]


async def test_only_the_controller_of_a_pod_of_the_service_is_exempt() -> None:
    quiet = "- {name: quiet, match: {namespaces: [shop]}}\n"
    simulation = DisruptionSimulation(POLICY + quiet)
    await simulation.create("loose")
    await simulation.create("helper", owners=(owner("helper", controller=False),))
    simulation.cluster.create(pod("of-quiet", labels={"app": "quiet"}, owners=(owner("quiet"),)))
    forged = {"podgate.io/service": "web"}
    simulation.cluster.create(pod("of-forged", labels=forged, owners=(owner("forged"),), namespace="elsewhere"))
    await simulation.run_all()
    for uid in ("loose", "helper", "of-quiet", "of-forged"):
        simulation.cluster.update(uid, reason="Evicted")
    simulation.cluster.update("helper", phase="Failed")
    await simulation.run_all()
    assert simulation.recorded == []


async def test_exemption_is_reported_again_after_a_store_outage() -> None:
    simulation = DisruptionSimulation()
    await simulation.run("a", "b")
    await simulation.run_all()
    simulation.set_available(store=False)
    simulation.lose("a")
    await simulation.watch_all()
    await simulation.send_starts()
    simulation.lose("b")
    await simulation.watch_all()
    simulation.set_available(store=True)
    await simulation.send_starts()
    assert (simulation.recorded, simulation.reported.exempted) == (
        [("web", ["controller:a", "controller:b"])],
        {"web": 2},
    )


async def test_a_service_that_has_left_the_policy_is_not_reported() -> None:
    simulation = DisruptionSimulation()
    await simulation.run("a")
    await simulation.run_all()
    simulation.lose("a")
    simulation.set_available(store=False)
    await simulation.watch_all()
    await simulation.send_starts()
    simulation.policy = compile_policy(POLICY.replace("name: web", "name: new"))
    simulation.watch.list_again()
    simulation.set_available(store=True)
    await simulation.watch_all()
    await simulation.send_starts()
    assert [service for service, _ in simulation.recorded] == ["new"]


async def test_remembered_entries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disruption_exemptions, "SOURCES_MAX", 2)
    simulation = DisruptionSimulation()
    await simulation.run("a", "b", "c")
    await simulation.run_all()
    simulation.lose("a", "b", "c")
    await simulation.run_all()
    assert [*simulation.controller._disruptions._suppressed_us] == [("web", "controller:c")]


async def test_loop_reports_without_explicit_steps() -> None:
    simulation = DisruptionSimulation()
    running = asyncio.create_task(simulation.controller.run())
    await wait_until(lambda: simulation.watch.event_handler is not None)
    await simulation.run("a")
    await simulation.watch_all()
    simulation.lose("a")
    await simulation.watch_all()
    await wait_until(lambda: simulation.reported.exempted == {"web": 1})
    running.cancel()
    await asyncio.wait([running])
