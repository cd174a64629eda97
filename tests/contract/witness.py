"""Check based only on acknowledged answers and a wall clock: no oversell, no unjustified denial.

It knows neither buckets nor the tag's time. What holds, and is checked at every charge and at every refusal:

- Zero oversell. An enforced charge, with all that counts against the same limit and was acknowledged in the trailing W,
  is within the limit that is in force at the charge; both ends of W count in. Since no sum of a trailing window grows
  but at a charge, it holds at every moment. What was counted past the limit (bookings, Warn and Audit, a limit lowered
  later) is in the sum: it only stops further charges. A refunded Pod was never created. A limit begins to count when it
  comes: what is charged before a window or a resource is limited is not in that sum. A clock that steps forward by d
  frees at most what d would have freed: W is measured on the wall plus all the steps forward.
- Zero unjustified denial. Every limit that a refusal names was really used as much as it says, by what was acknowledged
  within W * 65/64 on the wall, plus what the clock made of it: how far the answer to that charge was before the clock
  already, and all the steps back since.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.contract.exact_log import Place, find_kept, list_limits
from webhook.core.policy_fields import Mode
from webhook.core.quota import Acquire, Booking, CounterPlan, Receipt, Use


@dataclass(frozen=True)
class Wall:
    """A moment as the wall's clock has it, beside the store's, and how far that has been stepped by now."""

    true_us: int
    reading_us: int
    forward_us: int
    back_us: int

    @property
    def stretched_us(self) -> int:
        return self.true_us + self.forward_us


@dataclass(eq=False)
class _Spent:
    cost: Mapping[str, int]
    true_us: int
    stretched_us: int
    slack_us: int
    """How far the store's answer was before its own clock, less all steps back until then."""


class Witness:
    """Records requests and acknowledged answers; nothing that was only predicted."""

    def __init__(self) -> None:
        self._spent: dict[Place, list[_Spent]] = {}
        self._pods: dict[tuple[str, str], _Spent] = {}
        """The latest charge by tag and uid."""
        self.charges = self.refusals = 0

    def record_charge(self, request: Acquire, amounts: Mapping[str, int], receipt: Receipt, wall: Wall) -> None:
        """Record a charge, and check that it has oversold no limit. `amounts`: what the Pod takes, or grew by."""
        plan = request.plan
        spent = self._note(plan, request.namespace, amounts, wall)
        spent.slack_us += receipt.at_us - wall.reading_us
        if request.resize_from is None:  # a resize is not refunded
            self._pods[plan.tag, request.uid] = spent
        if plan.quota_mode is not Mode.ENFORCE:
            return
        self.charges += 1
        for account, window, limit in list_limits(plan, request.namespace):
            if not amounts.get(limit.counts):
                continue
            place = (account, window.seconds, limit.counts)
            taken = sum(
                admission.cost[limit.counts]
                for admission in self._spent[place]
                if wall.stretched_us - admission.stretched_us <= window.seconds * 1_000_000
            )
            assert taken <= limit.hard, f"oversold: {taken} of {limit.hard} in {place}"

    def record_booking(self, plan: CounterPlan, booking: Booking, at_us: int, wall: Wall) -> None:
        """Record a booked Pod; `at_us` is the store's time when it was booked."""
        age_us = max(0, at_us - booking.at_us)
        spent = self._pods[plan.tag, booking.uid] = self._note(plan, booking.namespace, booking.cost, wall)
        spent.slack_us += at_us - wall.reading_us
        spent.true_us -= age_us
        spent.stretched_us -= age_us

    def forget_charge(self, plan: CounterPlan, uid: str) -> None:
        """Forget a Pod's last charge."""
        last = self._pods[plan.tag, uid]
        for there in self._spent.values():
            if last in there:
                there.remove(last)

    def check_denial(self, request: Acquire, over: tuple[Use, ...], wall: Wall) -> None:
        """Check that every limit that a denial names was exceeded."""
        by_name = {
            (account[0], window.name, limit.resource): (account, window.seconds, limit)
            for account, window, limit in list_limits(request.plan, request.namespace)
        }
        self.refusals += 1
        for use in over:
            account, seconds, limit = by_name[str(use.of), use.window, use.resource]
            place = (account, seconds, limit.counts)
            really = sum(
                admission.cost[limit.counts]
                for admission in self._spent.get(place, ())
                if wall.true_us - admission.true_us < seconds * 1_015_625 + admission.slack_us + wall.back_us
            )
            assert use.used <= really, f"unjustified: {use} where {really} were used"
            assert use.used + use.asked > limit.hard - find_kept(use), f"unjustified: {use}"
            assert limit.hard == use.hard, f"unjustified: {use}"

    def _note(self, plan: CounterPlan, namespace: str, amounts: Mapping[str, int], wall: Wall) -> _Spent:
        spent = _Spent(amounts, wall.true_us, wall.stretched_us, -wall.back_us)
        for account, window, limit in list_limits(plan, namespace):
            if amounts.get(limit.counts):
                self._spent.setdefault((account, window.seconds, limit.counts), []).append(spent)
        return spent
