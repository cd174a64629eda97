"""Defects to plant in the pure parts: one function with one text replaced, and the simulation that must notice."""

import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

from pytest import MonkeyPatch  # noqa: PT013  one name

from tests.simulation.breakers import Breakers
from tests.simulation.charges import Charges
from tests.simulation.releases import Releases
from tests.simulation.rollouts import Rollouts
from tests.simulation.slots import Slots
from tests.simulation.wakings import Wakings
from tests.simulation.world import Simulation
from webhook.core.breaker import outcome_counting, probes, trip_detection
from webhook.core.breaker.advance import advance, trip_breaker
from webhook.core.controller import selection
from webhook.core.controller.free_capacity import FreeCapacity
from webhook.core.controller.lane import PodLane
from webhook.core.controller.order import ReleaseOrder
from webhook.core.groups import completeness
from webhook.core.ledger import group_charge, observed_pods, operations
from webhook.core.ledger.live_set import LiveSet
from webhook.core.ledger.store_time import TagClock
from webhook.core.ledger.tag_state import TagState
from webhook.core.ledger.window_ring import Ring
from webhook.core.quota import CounterPlan
from webhook.core.rollout import advance as rollout_advance
from webhook.core.rollout import commands, state
from webhook.core.shares.owner_slots import OwnerSlots


class Defect(NamedTuple):
    simulation: type[Simulation]
    function: Callable[..., Any]
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.simulation.name}: {self.function.__qualname__}: {self.old[:60]}".replace("\n", " ")

    def plant(self, patch: MonkeyPatch) -> None:
        """Replace the code of the function where it is: all that have imported it have the defect."""
        assert isinstance(self.function, FunctionType)
        source = textwrap.dedent(inspect.getsource(self.function))
        assert source.count(self.old) == 1, f"{source.count(self.old)} times in the source: {self.old}"
        names: dict[str, Any] = {}
        changed = compile(source.replace(self.old, self.new), self.function.__code__.co_filename, "exec")
        exec(changed, dict(self.function.__globals__), names)  # noqa: S102  a defect
        patch.setattr(self.function, "__code__", names[self.function.__name__].__code__)


DEFECTS = (
    Defect(Charges, Ring.used, "- _BEFORE, self", "- _BEFORE + 1, self"),
    Defect(Charges, Ring.free_at_us, "(number + BUCKETS_LIVE)", "(number + _BEFORE)"),
    Defect(Charges, Ring.refund, "self._sums[resource] -= amount", "pass"),
    Defect(Charges, operations.find_confirmed, "return known", "return None"),
    Defect(Charges, operations._acquire_pod, "charged_us = known.charged_at_us", "charged_us = now_us"),
    Defect(Charges, TagState.find_pod, " and not record.refunded", ""),
    Defect(Charges, TagClock.now, "max(reading_us + self.offset_us, self.last_us)", "reading_us + self.offset_us"),
    Defect(Charges, TagClock.observe, "self.offset_us += behind_us", "self.offset_us += 0"),
    Defect(Charges, operations.withdraw, " == state.live_pods.find_wait_start(uid)", ""),
    Defect(Charges, operations.refund, "state.live_pods.remove(record.live_set_key, uid, now_us)", "pass"),
    Defect(Charges, observed_pods.observe, "state.live_pods.stop_waiting(seen.uid)", "pass"),
    Defect(Charges, observed_pods.observe, "record is None and _charge_afterwards(state, plan, seen, now_us)", "False"),
    Defect(Charges, operations._resize, "{**old, **known.high_water} if known is not None else old", "old"),
    Defect(Charges, observed_pods._raise, "seen.cost[resource] - amount", "seen.cost[resource]"),
    Defect(Charges, CounterPlan.scope_of, "return pod.team if self.team_key else pod.namespace", 'return ""'),
    Defect(Charges, LiveSet.judge, "has + more > limit.hard + room", "has > limit.hard + room"),
    Defect(Breakers, advance, "step.record.open_until_us <= now_us", "step.record.open_until_us < now_us"),
    Defect(Breakers, trip_breaker, "environment.opened() >= plan", "environment.opened() > plan"),
    Defect(
        Breakers,
        outcome_counting.record_outcomes,
        " or reported.generation not in {None, record.generation}",
        "",
    ),
    Defect(Breakers, outcome_counting._find_lease, "record.leases[0] if", "record.leases[-1] if"),
    Defect(Breakers, probes.give_back_probe, " or lease.expires_us <= now_us", ""),
    Defect(Breakers, probes._count_success, "successes < plan.probes", "successes <= plan.probes"),
    Defect(Breakers, probes._has_room, "now_us)) < wanted", "now_us)) <= wanted"),
    Defect(
        Breakers, trip_detection.count_quota_event, "not rule.by_controller or not within.has_source(source)", "True"
    ),
    Defect(Breakers, trip_detection._pass_boundaries, "streak >= rule.consecutive", "streak > rule.consecutive"),
    Defect(
        Releases,
        group_charge.acquire_group,
        "for pod in new:\n            charge",
        "for pod in new[:1]:\n            charge",
    ),
    Defect(Releases, group_charge.acquire_group, "sum_costs(pod.cost for pod in new)", "new[0].cost"),
    Defect(Releases, completeness.find_completeness, "if len(distinct) < left:", "if len(distinct) + 1 < left:"),
    Defect(Releases, ReleaseOrder.put_back, "self._move_turn(taken.lane.member, to_front=True)", "pass"),
    Defect(Releases, ReleaseOrder.take, "natives >= lifted.lane", "natives > lifted.lane"),
    Defect(Releases, PodLane.find_keeping_us, "+ self.member.ageing_us", "+ 2 * self.member.ageing_us"),
    Defect(Rollouts, rollout_advance._choose_candidate, "state.find_rejection(wished) is not None", "False"),
    Defect(Rollouts, rollout_advance._choose_candidate, "state.paused is not None", "False"),
    Defect(Rollouts, rollout_advance._advance_candidate, "if state.paused is not None", "if False"),
    Defect(
        Rollouts, rollout_advance._find_duration_us, "0 if rollout.shadow is None else rollout.shadow.duration.us", "0"
    ),
    Defect(Rollouts, rollout_advance._has_lasted, ">= reading.duration_us", ">= 0"),
    Defect(Rollouts, rollout_advance._find_obstacle, "if reading.is_above:", "if False:"),
    Defect(Rollouts, rollout_advance._begin_next, "state.step + 1", "state.step + 2"),
    Defect(
        Rollouts,
        rollout_advance._stay_pinned,
        "return replace(dropped, waits",
        "return replace(dropped, stable=wished, waits",
    ),
    Defect(Rollouts, state.decide_in_force, "state.pinned is not None", "False"),
    Defect(
        Rollouts,
        state.RolloutState.reject,
        "self.drop_candidate() if self.candidate == rejection.hash else self",
        "self",
    ),
    Defect(Rollouts, commands.roll_back, "pinned=action", "pinned=None"),
    Defect(Slots, OwnerSlots._drop, "self._lowest = min(self._lowest, slot)", "pass"),
    Defect(Slots, OwnerSlots.keep, " if taken.claimed_us <= since_us]", "]"),
    Defect(Slots, OwnerSlots.free, " and taken.claim == claim", ""),
    Defect(Slots, OwnerSlots.find, "self._slots.get(claim, 0)", "0"),
    Defect(Slots, OwnerSlots.confirm, "if slot not in self._taken:", "if True:"),
    Defect(Wakings, selection.select, "if not controller.settled:\n", "if False:\n"),
    Defect(Wakings, selection.select, "free.take(controller.demand, pods)", "pass"),
    Defect(
        Wakings,
        selection.select,
        "for controller in ordered:\n        moment",
        "for controller in ordered[::-1]:\n        moment",
    ),
    Defect(Wakings, FreeCapacity.count_fitting_pods, "min(fits", "max(fits"),
    Defect(Wakings, FreeCapacity._add_limit, "left = use.left", "left = use.left + 1"),
)
