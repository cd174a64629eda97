"""Live Pods of one service, or of one of its namespaces: the amounts of each, and their sums for the limits.

A Pod is live from its admission on. The watch of Pods confirms and updates it, and removes it when it has ended.
`surge` is room above `hard` for a rollout: available while the sum is within `hard`, and for ten minutes afterwards.
"""

from collections.abc import Iterable, Mapping

from webhook.core.quota import STANDING, Cost, Holder, Limit, StandingPlan, Use

SURGE_US = 600_000_000
KNOWN_US = 600_000_000
"""Duration for which limits on live Pods are enforced after the last confirmation that all Pods are known."""

IDLE_US = 86_400_000_000


class LiveSet:
    """Amounts by uid, with their sums. A sum always equals its parts, and is never below 0."""

    __slots__ = ("_over_since_us", "_pods", "_sums", "touched_us")

    def __init__(self) -> None:
        self._pods: dict[str, Cost] = {}
        self._sums: dict[str, int] = {}
        self._over_since_us: dict[str, int] = {}
        self.touched_us = 0

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def __bool__(self) -> bool:
        return bool(self._pods)

    def items(self) -> Iterable[tuple[str, Cost]]:
        return self._pods.items()

    def find_held(self, uid: str) -> Cost | None:
        """Return the amounts of a live Pod, None for any other."""
        return self._pods.get(uid)

    def judge(self, plan: StandingPlan, asked: Cost, now_us: int) -> tuple[list[int], list[Use]]:
        """Return what each limit holds, and the limits that `asked` would exceed."""
        used, over = [], []
        for limit, surge in zip(plan.limits, plan.surge, strict=True):
            has, more = self._sums.get(limit.counts, 0), asked.get(limit.counts, 0)
            used.append(has)
            room = surge if self._may_surge(limit, has, now_us) else 0
            if more > 0 and has + more > limit.hard + room:
                free_at_us = None if more > limit.hard + surge else 0
                over.append(
                    Use(
                        STANDING,
                        limit.resource,
                        has,
                        limit.hard,
                        more,
                        free_at_us,
                        of=Holder.STANDING,
                        name="",
                        surge=room,
                    )
                )
        return used, over

    def list_uses(self, plan: StandingPlan, now_us: int) -> tuple[Use, ...]:
        """Return the current use of every limit."""
        found = []
        for limit, surge in zip(plan.limits, plan.surge, strict=True):
            has = self._sums.get(limit.counts, 0)
            room = surge if self._may_surge(limit, has, now_us) else 0
            found.append(Use(STANDING, limit.resource, has, limit.hard, 1, 0, of=Holder.STANDING, name="", surge=room))
        return tuple(found)

    def put(self, plan: StandingPlan, uid: str, cost: Cost, now_us: int) -> bool:
        """Add or update a live Pod with the limited part of its cost; return whether that changed anything."""
        amounts, before = plan.select_amounts(cost), self._pods.get(uid)
        self.touched_us = now_us
        if amounts == before:
            return False
        more = subtract(amounts, before or {})
        for limit in plan.limits:
            has = self._sums.get(limit.counts, 0)
            if has + more.get(limit.counts, 0) <= limit.hard:
                self._over_since_us.pop(limit.counts, None)
            elif has <= limit.hard:
                self._over_since_us[limit.counts] = now_us
            else:  # of unknown duration if the limit was lowered
                self._over_since_us.setdefault(limit.counts, now_us)
        self._pods[uid] = amounts
        self._add(more)
        return True

    def remove(self, uid: str, now_us: int) -> bool:
        """Remove a live Pod; return whether it was there."""
        amounts = self._pods.pop(uid, None)
        if amounts is None:
            return False
        self.touched_us = now_us
        self._add({resource: -amount for resource, amount in amounts.items()})
        return True

    def _may_surge(self, limit: Limit, has: int, now_us: int) -> bool:
        return has <= limit.hard or now_us - self._over_since_us.get(limit.counts, now_us) < SURGE_US

    def _add(self, amounts: Cost) -> None:
        for resource, amount in amounts.items():
            self._sums[resource] = self._sums.get(resource, 0) + amount


def subtract(new: Mapping[str, int], old: Mapping[str, int]) -> dict[str, int]:
    """Return `new` minus `old`, by resource; negative where `old` has more."""
    return {resource: new.get(resource, 0) - old.get(resource, 0) for resource in {*new, *old}}


def take_larger(cost: Mapping[str, int], held: Mapping[str, int] | None, unless_held: Mapping[str, int]) -> Cost:
    """Return a cost with no amount below what is held; None: `unless_held` is."""
    least = unless_held if held is None else held
    return {resource: max(amount, least.get(resource, 0)) for resource, amount in cost.items()}
