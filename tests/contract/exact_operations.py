"""Operations on a small set of services that share a pool, and the domains of their arguments.

An operation is (name, arguments...), of constants only: a list of them describes a whole scenario, and replays it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.contract.witness import Wall
from webhook.core.policy_fields import Mode
from webhook.core.quota import Cost, Limit, WindowPlan, canonicalize

SECOND_US = 1_000_000
Operation = tuple[Any, ...]

SOLO, WEB, API, BATCH, POOL = "solo", "web", "api", "batch", "pool"
POOLED = (WEB, API, BATCH)
SERVICES = (SOLO, *POOLED)
_SECONDS = (1, 2, 3, 60, 64)
_HARD = {"pods": 4, "cpu": 700, "memory": 90, "example.com/gpu": 3}
NAMESPACES = ("x", "y", "z")
_COSTS: tuple[Cost, ...] = (
    {"pods": 1},
    {"pods": 1, "requests.cpu": 0},
    {"pods": 1, "requests.cpu": 100},
    {"pods": 1, "requests.cpu": 350, "requests.memory": 30},
    {"pods": 1, "requests.cpu": 701, "requests.memory": 91},
    {"pods": 1, "requests.memory": 1, "limits.cpu": 500, "example.com/gpu": 1},
    {"pods": 1, "requests.memory": 60, "example.com/gpu": 2},
    {"pods": 0},
)
_PAUSES_US = (*range(0, 2_000_000, 50_021), 1, 15_624, 15_625, 15_626, 937_500, 65 * SECOND_US, 130 * SECOND_US)
_BACK_US = (1, 1_000, 1_999_999, 2_000_001, 3 * SECOND_US, 40 * SECOND_US, 400 * SECOND_US)
_FORWARD_US = (1, 1_000, 500_000, 3 * SECOND_US, 40 * SECOND_US, 400 * SECOND_US)

_CHANGES = ("raise", "lower", "window", "resource", "apart", "mode", "fleet", "guarantee")

ARGUMENTS: Mapping[str, tuple[Sequence[Any], ...]] = {
    # Services, namespaces, fresh uids, costs, whether it only peeks.
    "ask": (SERVICES, NAMESPACES, range(10_000), _COSTS, (False, False, False, True)),
    "again": (SERVICES, NAMESPACES, range(50), _COSTS, (False, False, True)),
    "burst": (SERVICES, NAMESPACES, range(10_000), _COSTS, range(2, 9)),
    "storm": (_SECONDS, range(-1, 2), range(66), SERVICES, _COSTS),
    "resize": (SERVICES, NAMESPACES, range(50), _COSTS, _COSTS, (False, False, True)),
    "refund": (SERVICES, range(50)),
    "book": (SERVICES, NAMESPACES, range(50), _COSTS, (*_PAUSES_US, -SECOND_US)),
    "book_new": (SERVICES, NAMESPACES, range(10_000), _COSTS, (*_PAUSES_US, -SECOND_US)),
    "both_sides": (SERVICES, NAMESPACES, _COSTS),
    "tick": (),
    "change": (
        (*SERVICES, POOL),
        ("raise", "lower", "window", "resource", "apart", "mode", "fleet", "guarantee"),
        range(20),
    ),
    "pause": (_PAUSES_US,),
    "edge": (_SECONDS, (0, 1, 2, 63, 64, 65, 66), range(-1, 2)),
    "step_back": (_BACK_US,),
    "step_forward": (_FORWARD_US,),
    "stay_behind": (SERVICES, _BACK_US, (9_999_999, 10_000_000, 10_000_001)),
}
"""The values of each argument of an operation."""

_OFTEN = ("ask",) * 6 + ("again", "burst", "pause", "edge", "both_sides", "refund") * 2
_NAMES = (*ARGUMENTS, *_OFTEN)


def draw(chosen: Random) -> Operation:
    name = chosen.choice(_NAMES)
    return name, *(chosen.choice(choices) for choices in ARGUMENTS[name])


class HandClock:
    """A wall clock, and the store's clock, which is stepped. Both begin at a bucket's edge of every window."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.true_us = 3_600_000 * SECOND_US
        self.forward_us = self.back_us = 0

    def now_us(self) -> int:
        return self.true_us + self.forward_us - self.back_us

    def wall(self) -> Wall:
        return Wall(self.true_us, self.now_us(), self.forward_us, self.back_us)


@dataclass
class Terms:
    """The quota of a service or of the pool, changed during a run: hard limits by resource by seconds."""

    windows: dict[int, dict[str, int]]
    apart: bool = False
    mode: Mode = Mode.ENFORCE

    def change(self, what: str, number: int) -> None:
        chosen = sorted(self.windows)[number % len(self.windows)] if self.windows else 0
        hard = self.windows.get(chosen, {})
        match what:
            case "raise":
                hard.update({resource: limit * 2 + 1 for resource, limit in hard.items() if limit < 1_000_000})
            case "lower":
                hard.update({resource: limit // 2 for resource, limit in hard.items()})
            case "window":
                seconds = _SECONDS[number % len(_SECONDS)]
                if self.windows.pop(seconds, None) is None:
                    self.windows[seconds] = {"pods": _HARD["pods"] + number % 3}
            case "resource" if self.windows:
                resource = sorted(_HARD)[number % len(_HARD)]
                if hard.pop(resource, None) is None:
                    hard[resource] = _HARD[resource]
                if not hard:
                    del self.windows[chosen]
            case "apart":
                self.apart = not self.apart
            case "mode":
                # Mostly enforced: other charges would fill the enforced limits.
                self.mode = Mode.ENFORCE if self.mode is not Mode.ENFORCE or number % 2 else Mode.AUDIT

    def build_plans(self) -> tuple[WindowPlan, ...]:
        return tuple(
            WindowPlan(
                f"{seconds}s", seconds, tuple(Limit(name, canonicalize(name), most) for name, most in hard.items())
            )
            for seconds, hard in self.windows.items()
        )
