"""Who of a tag's Pods lives, and who was let in and has not been seen yet: what a watch confirms and mends."""

from collections.abc import Iterable, Iterator

from webhook.core.ledger.live_set import IDLE_US, KNOWN_US, LiveSet
from webhook.core.quota import HOUR_US, Cost, CounterPlan, Use

WAITED_US = HOUR_US
"""A Pod is waited for no longer: what it was charged is remembered for as long, at least."""

Stands = tuple[str, bool, str]
"""Whose live Pods: the service, whether the whole fleet's, and the namespace ("" where it counts as one)."""


class Roll:
    """Moments are the tag's. Live Pods go by service and namespace, those that are waited for by uid."""

    __slots__ = ("_known_us", "_live", "_waiting")

    def __init__(self) -> None:
        self._live: dict[Stands, LiveSet] = {}
        self._known_us: dict[tuple[str, bool], int] = {}
        self._waiting: dict[str, int] = {}

    def known(self, plan: CounterPlan, now_us: int) -> bool:
        """Say whether limits on live Pods are enforced: all Pods have been listed, and somebody still watches."""
        at_us = self._known_us.get((plan.service, plan.fleet))
        return at_us is not None and now_us - at_us < KNOWN_US

    def set_known(self, plan: CounterPlan, scopes: Iterable[str], now_us: int) -> None:
        """Take it that all Pods are known, and that those of `scopes` still live, however long nothing has changed."""
        self._known_us[plan.service, plan.fleet] = now_us
        for scope in scopes:
            self._of(plan, scope).touched_us = now_us

    def judge(self, plan: CounterPlan, scope: str, asked: Cost, now_us: int) -> tuple[list[int], list[Use]]:
        """Return what each limit on live Pods holds, and those that do not hold `asked` beside it."""
        if plan.standing is None:
            return [], []
        used, over = self._of(plan, scope).judge(plan.standing, asked, now_us)
        return used, over if self.known(plan, now_us) else []

    def uses(self, plan: CounterPlan, scope: str, now_us: int) -> tuple[Use, ...]:
        return self._of(plan, scope).uses(plan.standing, now_us) if plan.standing else ()

    def held(self, plan: CounterPlan, scope: str, uid: str) -> Cost | None:
        """Return what a Pod stands with, None where it does not."""
        return self._of(plan, scope).held(uid)

    def put(self, plan: CounterPlan, scope: str, uid: str, cost: Cost, now_us: int) -> bool:
        """Let a Pod stand; True if it did not so before."""
        if plan.standing is None:
            return False
        return self._live.setdefault(stands(plan, scope), LiveSet()).put(plan.standing, uid, cost, now_us)

    def remove(self, where: Stands, uid: str, now_us: int) -> bool:
        """Let a Pod stand no longer; True if it did."""
        live = self._live.get(where)
        return live is not None and live.remove(uid, now_us)

    def live(self, plan: CounterPlan, scope: str, now_us: int) -> list[str]:
        """Return who stands and is not waited for."""
        return [uid for uid in self._of(plan, scope) if self._waiting.get(uid, -WAITED_US) <= now_us - WAITED_US]

    def scopes(self, plan: CounterPlan) -> Iterator[str]:
        for (service, fleet, scope), live in self._live.items():
            if live and (service, fleet, bool(scope)) == (plan.service, plan.fleet, plan.per_namespace):
                yield scope

    def wait_for(self, uid: str, at_us: int) -> None:
        self._waiting[uid] = at_us

    def strike(self, uid: str) -> None:
        """Wait no longer."""
        self._waiting.pop(uid, None)

    def waited_for(self, age_us: int, now_us: int, most: int) -> list[tuple[int, str]]:
        """Return (since when, uid), oldest first, of those that are waited for at least so long."""
        found = [(at_us, uid) for uid, at_us in self._waiting.items() if now_us - WAITED_US < at_us <= now_us - age_us]
        return sorted(found)[:most]

    def sweep(self, now_us: int) -> bool:
        """Forget what nobody asks for any more; True where nothing is left."""
        for uid in [uid for uid, at_us in self._waiting.items() if at_us <= now_us - WAITED_US]:
            del self._waiting[uid]
        for where in [where for where, live in self._live.items() if live.touched_us <= now_us - IDLE_US]:
            del self._live[where]
        return not self._live and not self._waiting

    def _of(self, plan: CounterPlan, scope: str) -> LiveSet:
        live = self._live.get(stands(plan, scope))
        return LiveSet() if live is None else live


def stands(plan: CounterPlan, scope: str) -> Stands:
    return plan.service, plan.fleet, scope
