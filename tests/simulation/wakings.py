"""Held controllers: those of a pool's services that lack Pods, and a leader that wakes them as there is room.

At each round, by a plain list of all charges: no more are woken than there is room for beside those that were just
woken, and none before an older one of its class, or of a higher one. In the end every controller has its Pods.
"""

from dataclasses import dataclass

from tests.contract.exact_log import is_counted
from tests.controller.controller_simulation import compile_policy
from tests.simulation.store_clock import StoreClock, call
from tests.simulation.world import SECOND_US, Fault, Simulation, World
from webhook.adapters.memory_store import MemoryStore
from webhook.core.controller.demand import compute_demand
from webhook.core.controller.free_capacity import FreeCapacity
from webhook.core.controller.held_controller import ControllerReference, CreatingController
from webhook.core.controller.selection import HeldController, Selection, select
from webhook.core.kubernetes.pod import PodMetadata
from webhook.core.quota import Acquire

_SERVICES = """
- {name: gold, slaClass: gold, pool: shared, match: {namespaces: [gold]}}
- {name: bronze, pool: shared, match: {namespaces: [bronze]}, quota: {windows: [{window: 20s, hard: {pods: 4}}]}}
"""
_SECONDS, _POOL_HARD, _BRONZE_HARD = 20, 9, 4
_POLICY = compile_policy(
    _SERVICES, f"pools: [{{name: shared, windows: [{{window: 20s, hard: {{pods: {_POOL_HARD}}}}}]}}]"
)
_MOST = 3
_PAUSE_US = 3 * SECOND_US
"""So long a controller that was woken may be creating Pods."""


@dataclass
class _Controller:
    name: str
    service: str
    missing: int
    refused_us: int = 0
    settled_us: int = 0
    creates: bool = False


class Wakings(Simulation):
    """`charges`: of which service, and when."""

    name = "wakings"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.clock = StoreClock(world)
        self.store = MemoryStore(self.clock)
        self.controllers: list[_Controller] = []
        self.charges: list[tuple[str, int]] = []
        self.pods = 0
        self.has_ended = False
        for act in (self._scale, self._round):
            world.do_after(0, act)

    # --- users, and Kubernetes' own controllers ---

    def _scale(self) -> None:
        draw = self.world.random
        controller = _Controller(f"c{len(self.controllers):03}", draw.choice(("gold", "bronze")), draw.randrange(1, 6))
        self.controllers.append(controller)
        self._create(controller)
        if not self.has_ended:
            self.world.do_after(draw.randrange(1, 20 * SECOND_US), self._scale)

    def _create(self, controller: _Controller) -> None:
        """Create all that it lacks, one after another, up to the first that is denied."""
        controller.creates = bool(controller.missing)
        if not controller.missing:
            return
        self.pods += 1
        plan, uid = _POLICY.plans[controller.service], f"u{self.pods}"
        receipt = call(self.store.acquire(Acquire(plan, controller.service, uid, {"pods": 1}, "user:x")))
        if receipt.charged:
            controller.missing -= 1
            self.charges.append((controller.service, self.world.now_us))
            self.world.do_after(min(self.world.draw_delay_us(), SECOND_US // 5), self._create, controller)
        else:
            controller.creates = False
            controller.refused_us = controller.refused_us or self.world.now_us

    def _wake(self, controller: _Controller) -> None:
        if not controller.creates:
            self._create(controller)

    # --- the leader ---

    def _round(self) -> None:
        now_us = self.world.now_us
        if self.world.strikes(Fault.CRASH, 0.01):
            for controller in self.controllers:  # after a lease, when nobody who was woken creates any more
                controller.settled_us = now_us + 2 * _PAUSE_US
        held = {controller.name: controller for controller in self.controllers if controller.refused_us}
        held = {name: controller for name, controller in held.items() if controller.missing}
        free = FreeCapacity()
        for name in ("gold", "bronze"):
            free.add(_POLICY.parts[name], call(self.store.snapshot(_POLICY.plans[name], name)))
        listed = [self._build(controller) for controller in held.values()]
        selection = select(listed, free, now_us, _MOST)
        self._check_selection(listed, selection)
        for found in selection.woken:
            controller = held[found.reference.name]
            controller.settled_us = now_us + _PAUSE_US
            if not self.world.strikes(Fault.LOSS, 0.1):
                self.world.do_after(min(self.world.draw_delay_us(), SECOND_US // 5), self._wake, controller)
        self.world.do_after(SECOND_US, self._round)

    def _build(self, controller: _Controller) -> HeldController:
        creating = CreatingController(PodMetadata(namespace=controller.service), "ReplicaSet")
        demand = compute_demand(creating, _POLICY, {})
        assert demand is not None
        reference = ControllerReference("ReplicaSet", controller.service, controller.name, controller.name)
        is_settled = controller.settled_us <= self.world.now_us
        return HeldController(
            reference, demand, controller.missing, controller.refused_us, is_settled, controller.settled_us
        )

    # --- what must hold ---

    def _check_selection(self, listed: list[HeldController], selection: Selection) -> None:
        woken = {found.reference.name for found in selection.woken}
        assert len(selection.woken) == len(woken) <= _MOST, f"woken: {selection.woken}"
        for service, hard in (("", _POOL_HARD), ("bronze", _BRONZE_HARD)):
            used = [at_us for of, at_us in self.charges if service in {"", of} and self._is_counted(at_us)]
            mine = [found for found in listed if service in {"", found.demand.service}]
            just_woken = sum(found.missing for found in mine if not found.settled)
            asked = sum(found.reference.name in woken for found in mine)
            assert not asked or len(used) + just_woken + asked <= hard, (
                f"{asked} woken, and no room in {service or 'pool'}"
            )
        passed: set[str] = set()
        for found in sorted(listed, key=lambda found: (found.demand.service == "bronze", found.refused_us)):
            if found.reference.name in woken:
                assert not passed & {"gold", found.demand.service}, f"{found.reference.name} is before an older one"
            elif found.settled and len(woken) < _MOST:
                others = [one for one in listed if one.refused_us == found.refused_us]
                passed |= {found.demand.service} if len(others) == 1 else set()

    def _is_counted(self, at_us: int) -> bool:
        return is_counted(at_us, _SECONDS, self.world.now_us)

    def settle(self) -> None:
        self.has_ended, self.world.faults = True, frozenset()
        self.world.run_until(self.world.now_us + 20 * SECOND_US)
        missing = sum(controller.missing for controller in self.controllers)
        self.world.run_until(self.world.now_us + (60 + missing * 10) * SECOND_US)
        left = [controller for controller in self.controllers if controller.missing]
        assert not left, f"never woken: {left}"
