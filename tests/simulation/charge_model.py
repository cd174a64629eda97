"""What a store must answer: the exact log of charges, a witness, and the live Pods of one service as a list."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from tests.contract.exact_log import ExactLog
from tests.contract.witness import Wall, Witness
from webhook.core.quota import Acquire, Booking, Cost, CounterPlan, DeniedBy, Receipt, Seen, Sighting

_KNOWN_US = 600_000_000
"""For so long limits on live Pods are enforced after they were known to be complete."""


@dataclass
class ChargeModel:
    """The log, the witness and the live Pods.

    `live`: the Pods of services with limits on live Pods, with what they ask for. `relied`: charges that more than one
    call knows of, or that were seen: none of these can be withdrawn.
    """

    log: ExactLog = field(default_factory=ExactLog)
    witness: Witness = field(default_factory=Witness)
    live: dict[str, Cost] = field(default_factory=dict)
    relied: set[str] = field(default_factory=set)
    complete_us: int = -_KNOWN_US

    def is_charged(self, plan: CounterPlan, uid: str, reading_us: int) -> bool:
        now_us = self.log.find_time(plan).compute_tag_time(reading_us)
        return self.log._find_known(plan, uid, now_us) is not None

    def check_acquire(self, request: Acquire, receipt: Receipt, wall: Wall) -> None:
        """Compare the answer to a request."""
        plan, uid, reading_us = request.plan, request.uid, wall.reading_us
        is_known = self.is_charged(plan, uid, reading_us)
        if is_known:
            self.relied.add(uid)
        if plan.standing is not None:
            self._check_live(request, receipt, reading_us, is_known=is_known)
            return
        logged, amounts = self.log.acquire(request, reading_us)
        assert receipt == logged, f"{uid}:\n{receipt}\nlogged:\n{logged}"
        if receipt.over:
            self.witness.check_denial(request, receipt.over, wall)
        if receipt.charged:
            self.relied.discard(uid)
            self.witness.record_charge(request, amounts, receipt, wall)

    def check_resize(self, request: Acquire, receipt: Receipt, wall: Wall) -> None:
        """Compare the answer to a Pod that asks for more, or for less, than it was charged for."""
        logged, amounts = self.log.acquire(request, wall.reading_us)
        assert receipt == logged, f"resize of {request.uid}:\n{receipt}\nlogged:\n{logged}"
        if receipt.over:
            self.witness.check_denial(request, receipt.over, wall)
        if receipt.charged:
            self.witness.record_charge(request, amounts, receipt, wall)

    def _check_live(self, request: Acquire, receipt: Receipt, reading_us: int, *, is_known: bool) -> None:
        plan, standing = request.plan, request.plan.standing
        assert standing is not None
        (limit,) = standing.limits
        before = self.sum_live()
        is_full = before + request.cost["pods"] - self.live.get(request.uid, {}).get("pods", 0) > limit.hard
        if not is_known and is_full and reading_us - self.complete_us < _KNOWN_US:
            assert receipt.refused is DeniedBy.QUOTA, f"{request.uid} is beside {before} live Pods of {limit.hard}"
            self.log.find_time(plan).advance(reading_us)
            return
        logged, _ = self.log.acquire(replace(request, plan=replace(plan, standing=None)), reading_us)
        assert (receipt.charged, receipt.repeated) == (logged.charged, logged.repeated), request.uid
        if receipt.charged:
            self.relied.discard(request.uid)
            self.live[request.uid] = request.cost

    def sum_live(self) -> int:
        return sum(cost["pods"] for cost in self.live.values())

    def check_refund(self, plan: CounterPlan, uid: str, answer: bool, wall: Wall) -> None:  # noqa: FBT001  of the store
        if self.is_charged(plan, uid, wall.reading_us):
            self.live.pop(uid, None)
        expected = self.log.refund(plan, uid, wall.reading_us)
        assert answer is expected, f"refund of {uid}: {answer}"
        if expected:
            self.witness.forget_charge(plan, uid)

    def check_withdrawal(self, request: Acquire, answer: bool, wall: Wall) -> None:  # noqa: FBT001  of the store
        """Check that a charge is undone if only one call knows of it: then it was never made."""
        plan, uid = request.plan, request.uid
        expected = self.is_charged(plan, uid, wall.reading_us) and uid not in self.relied
        assert answer is expected, f"withdrawal of {uid}: {answer}"
        if expected:
            self.live.pop(uid, None)
            if self.log.refund(plan, uid, wall.reading_us):
                self.witness.forget_charge(plan, uid)
            self.log._pods.pop((plan.tag, uid))

    def check_booking(self, plan: CounterPlan, booking: Booking, answer: int, wall: Wall) -> None:
        if self.is_charged(plan, booking.uid, wall.reading_us):
            self.relied.add(booking.uid)
        moment = self._book(plan, booking, wall)
        assert answer == (moment is not None), f"booking of {booking.uid}: {answer}"
        if moment is not None:
            self.relied.discard(booking.uid)
            self._put(plan, booking)

    def check_sighting(self, plan: CounterPlan, seen: Sighting, answer: Seen, wall: Wall) -> None:
        """Check that a Pod that is seen is charged, if it was not, as of its creation; and live until it ends.

        What it uses above its highest charge is charged now.
        """
        moment, has_grown = None, False
        if self.is_charged(plan, seen.uid, wall.reading_us):
            has_grown = self._note_growth(plan, seen, wall)
        else:
            self.log._pods.pop((plan.tag, seen.uid), None)  # also one that was refunded too soon
            booking = Booking(seen.namespace, seen.uid, seen.cost, seen.created_at_us)
            moment = self._book(plan, booking, wall)
        assert (answer.charged, answer.raised) == (moment is not None, has_grown), f"sighting of {seen.uid}: {answer}"
        self.relied.add(seen.uid)
        if seen.lives:
            self._put(plan, seen)
        else:
            self.live.pop(seen.uid, None)

    def _note_growth(self, plan: CounterPlan, seen: Sighting, wall: Wall) -> bool:
        pod, time = self.log._pods[plan.tag, seen.uid], self.log.find_time(plan)
        more = {name: seen.cost.get(name, 0) - amount for name, amount in pod.most.items() if name != "pods"}
        more = {name: amount for name, amount in more.items() if amount > 0}
        if more:
            now_us = time.compute_tag_time(wall.reading_us)
            self.log._charge(plan, seen.namespace, more, now_us, now_us)
            spent = self.witness._note(plan, seen.namespace, more, wall)
            spent.slack_us += now_us - time.ahead_us - wall.reading_us
            pod.most = {**pod.most, **{name: seen.cost[name] for name in more}}
            pod.expires_us = now_us + plan.remember_us
        return bool(more)

    def _book(self, plan: CounterPlan, booking: Booking, wall: Wall) -> int | None:
        time = self.log.find_time(plan)
        at_us = time.compute_tag_time(wall.reading_us) - time.ahead_us
        moment = self.log.book(plan, booking, wall.reading_us)
        if moment is not None:
            self.witness.record_booking(plan, booking, at_us, wall)
        return moment

    def _put(self, plan: CounterPlan, pod: Booking | Sighting) -> None:
        if plan.standing is not None:
            self.live[pod.uid] = pod.cost
