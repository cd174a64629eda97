"""Expected answers of a store, computed from plain lists of all past events.

It shares the requests and answers with the engine, and none of its code. An event of moment m counts at a moment n in
every window of which n lies less than 65 buckets after m, each 1/64 of the window wide and aligned to the epoch.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from webhook.core.policy_fields import Mode
from webhook.core.quota import (
    Acquire,
    Booking,
    Cost,
    CounterPlan,
    DeniedBy,
    GuaranteeUse,
    Holder,
    Limit,
    Receipt,
    ServiceSnapshot,
    Use,
    WindowPlan,
)

Account = tuple[str, str, bool, str]
"""Service or pool, its name, whether the whole fleet's, and the namespace where each counts apart."""
Place = tuple[Account, int, str]
"""An account, the seconds of a window, a resource: what one limit is about."""


class TagTime:
    """The time of a tag, from readings of the store's clock: never before the last write."""

    def __init__(self) -> None:
        self.written_us = 0
        self.ahead_us = 0
        """How far this time is before the store's clock, since that was found to have stayed behind."""
        self._far_behind_since_us: int | None = None

    def compute_tag_time(self, reading_us: int) -> int:
        return max(self.written_us, reading_us + self.ahead_us)

    def advance(self, reading_us: int) -> None:
        """On a charge or tick: a lag of up to 2 s is waited out, a longer one for at most 10 s."""
        missing_us = self.written_us - reading_us - self.ahead_us
        since_us = self._far_behind_since_us
        if missing_us <= 2_000_000:
            if since_us is not None:
                self.written_us, self._far_behind_since_us = self.compute_tag_time(reading_us), None
        elif since_us is None or since_us > reading_us:
            self._far_behind_since_us = reading_us
        elif since_us + 10_000_000 <= reading_us:
            self.ahead_us, self._far_behind_since_us = self.ahead_us + missing_us, None


@dataclass(eq=False)
class Event:
    """One charge: `places` are where it counts, until a refund takes them away."""

    at_us: int
    cost: Cost
    places: set[Place]


@dataclass
class Pod:
    """The record of a uid."""

    expires_us: int
    most: Mapping[str, int]
    event: Event | None
    refunded: bool = False


def is_counted(at_us: int, seconds: int, now_us: int) -> bool:
    width_us = seconds * 1_000_000 // 64
    return now_us // width_us - at_us // width_us < 65


def list_limits(plan: CounterPlan, namespace: str) -> Iterator[tuple[Account, WindowPlan, Limit]]:
    own = ("service", plan.service, plan.fleet, namespace if plan.per_namespace else "")
    for window in plan.windows:
        for limit in window.limits:
            yield own, window, limit
    if plan.pool is not None:
        for window in plan.pool.windows:
            for limit in window.limits:
                yield ("pool", plan.pool.name, plan.fleet, ""), window, limit


def find_resource(place: Place) -> str:
    """Return the resource of a place; that of a member's own counter is before the member's name."""
    return place[2].partition(" ")[0]


def find_kept(use: Use) -> int:
    """Return what of a limit is kept from a Pod for others: nothing within the guarantee of its own service."""
    guarantee = use.guarantee
    return 0 if guarantee is None or guarantee.used + use.asked <= guarantee.hard else guarantee.kept


class ExactLog:
    """All events of one scenario, by the places that they were counted in, and the records of its Pods."""

    def __init__(self) -> None:
        self._events: dict[Place, list[Event]] = {}
        self._times: dict[tuple[str, bool], TagTime] = {}
        self._pods: dict[tuple[str, str], Pod] = {}

    def find_time(self, plan: CounterPlan) -> TagTime:
        return self._times.setdefault((plan.tag, plan.fleet), TagTime())

    def acquire(self, request: Acquire, reading_us: int) -> tuple[Receipt, Cost]:
        """Return the expected answer of the store, and the Pod's charge."""
        plan, time = request.plan, self.find_time(request.plan)
        if not request.peek:
            time.advance(reading_us)
        now_us = time.compute_tag_time(reading_us)
        known = self._find_known(plan, request.uid, now_us)
        if known is not None and request.resize_from is None:
            used, _ = self._judge(request, {}, now_us)
            charged_us = 0 if known.event is None else known.event.at_us - time.ahead_us
            return Receipt(now_us - time.ahead_us, repeated=True, used=used, charged_us=charged_us), {}
        asked = request.cost if request.resize_from is None else _compute_growth(request, known)
        used, over = self._judge(request, asked, now_us)
        enforced = plan.quota_mode is Mode.ENFORCE
        passes = not request.peek and not (over and enforced)
        if passes:
            event = self._charge(plan, request.namespace, asked, now_us, now_us)
            self._remember(request, event, known, now_us)
            used = tuple(has + asked.get(limit.counts, 0) for has, (_, _, limit) in zip(used, plan.limits, strict=True))
        free = [use.free_at_us for use in over]
        return Receipt(
            at_us=now_us - time.ahead_us,
            refused=DeniedBy.QUOTA if over and enforced else None,
            would_refuse=(DeniedBy.QUOTA,) if over and not enforced else (),
            charged=passes and (request.resize_from is None or bool(asked)),
            used=used,
            over=over,
            free_at_us=None if None in free else max([moment for moment in free if moment], default=0),
        ), (asked if passes else {})

    def refund(self, plan: CounterPlan, uid: str, reading_us: int) -> bool:
        pod = self._find_known(plan, uid, self.find_time(plan).compute_tag_time(reading_us))
        if pod is None:
            return False
        pod.refunded = True
        gone = set()
        for place in pod.event.places if pod.event else ():
            (_, _, fleet, _), seconds, _ = place
            assert pod.event is not None
            if is_counted(pod.event.at_us, seconds, self._times[plan.tag, fleet].compute_tag_time(reading_us)):
                gone.add(place)
        for (_, _, fleet, _), _, _ in gone:
            time = self._times[plan.tag, fleet]
            time.written_us = time.compute_tag_time(reading_us)
        if pod.event is not None:
            pod.event.places -= gone
        return bool(gone)

    def book(self, plan: CounterPlan, booking: Booking, reading_us: int) -> int | None:
        """Return the moment that it was booked at, by the tag's time; None where it must not be."""
        time = self.find_time(plan)
        now_us = time.compute_tag_time(reading_us)
        at_us = min(booking.at_us + time.ahead_us, now_us)
        pod = self._pods.get((plan.tag, booking.uid))
        if (pod is not None and pod.expires_us > now_us) or at_us + plan.remember_us <= now_us:
            return None
        event = self._charge(plan, booking.namespace, booking.cost, at_us, now_us)
        self._pods[plan.tag, booking.uid] = Pod(at_us + plan.remember_us, booking.cost, event)
        return at_us

    def snapshot(self, plan: CounterPlan, namespace: str, reading_us: int) -> ServiceSnapshot:
        time = self.find_time(plan)
        now_us = time.compute_tag_time(reading_us)
        scopes = {"": ""}
        if plan.per_namespace:
            found = {
                scope
                for ((holder, name, fleet, scope), seconds, _), events in self._events.items()
                if scope and (holder, name, fleet) == ("service", plan.service, plan.fleet)
                if any(is_counted(event.at_us, seconds, now_us) for event in events)
            }
            scopes = {scope: scope for scope in sorted(found | ({namespace} if namespace else set()))}
        own = {scope: self._stand(plan, scope, "service", now_us) for scope in scopes}
        return ServiceSnapshot(
            now_us - time.ahead_us, own if plan.windows else {}, None, self._stand(plan, "", "pool", now_us)
        )

    def sum_usage(self, place: Place, now_us: int) -> int:
        return sum([event.cost[find_resource(place)] for event in self._list_counting(place, now_us)])

    def _list_counting(self, place: Place, now_us: int) -> list[Event]:
        return [
            event
            for event in self._events.get(place, ())
            if place in event.places and is_counted(event.at_us, place[1], now_us)
        ]

    def _stand(self, plan: CounterPlan, scope: str, holder: str, now_us: int) -> tuple[Use, ...]:
        return tuple(
            self._use(plan, (account, window, limit), 1, now_us)
            for account, window, limit in list_limits(plan, scope)
            if account[0] == holder
        )

    def _judge(self, request: Acquire, asked: Cost, now_us: int) -> tuple[tuple[int, ...], tuple[Use, ...]]:
        found = [
            self._use(request.plan, account_limit, asked.get(account_limit[2].counts, 0), now_us)
            for account_limit in list_limits(request.plan, request.namespace)
        ]
        over = [use for use in found if use.asked and use.used + use.asked > use.hard - find_kept(use)]
        return tuple(use.used for use in found), tuple(over)

    def _use(self, plan: CounterPlan, account_limit: tuple[Account, WindowPlan, Limit], asked: int, now_us: int) -> Use:
        account, window, limit = account_limit
        place = (account, window.seconds, limit.counts)
        used, found = self.sum_usage(place, now_us), window.find_guarantees(limit)
        if found is None:
            guarantee, free_at_us = None, self._free_at_us(place, limit.hard, asked, now_us)
        else:
            parties = [(found.counter, found.hard), *found.others]
            guarantee = self._find_guarantee(place, parties, now_us, ())
            free_at_us = self._free_at_us_of_member(place, limit.hard, asked, parties, now_us)
        if free_at_us:
            free_at_us -= self.find_time(plan).ahead_us
        holder = Holder(account[0])
        name = account[1] if holder is Holder.POOL else ""
        use = Use(window.name, limit.resource, used, limit.hard, asked, free_at_us, holder, name)
        return replace(use, guarantee=guarantee)

    def _find_guarantee(
        self, place: Place, parties: Sequence[tuple[str, int]], now_us: int, gone: Collection[Event]
    ) -> GuaranteeUse:
        """Return the guarantee of the first party, and what the others have left of theirs, without what has gone."""
        account, seconds, resource = place
        uses = [
            sum(
                event.cost[resource]
                for event in self._list_counting((account, seconds, counter), now_us)
                if event not in gone
            )
            for counter, _ in parties
        ]
        kept = sum(max(hard - used, 0) for used, (_, hard) in list(zip(uses, parties, strict=True))[1:])
        return GuaranteeUse(parties[0][1], uses[0], kept)

    def _free_at_us_of_member(
        self, place: Place, hard: int, asked: int, parties: Sequence[tuple[str, int]], now_us: int
    ) -> int | None:
        """Let events expire one after another, until it fits in the own guarantee, or beside those of others."""
        _, seconds, resource = place
        width_us = seconds * 1_000_000 // 64
        events = sorted(self._list_counting(place, now_us), key=lambda event: event.at_us)
        for count in range(len(events) + 1):
            gone, left = events[:count], sum(event.cost[resource] for event in events[count:])
            guarantee = self._find_guarantee(place, parties, now_us, gone)
            is_own = guarantee.used + asked <= guarantee.hard and left + asked <= hard
            if is_own or left + asked + guarantee.kept <= hard:
                return (gone[-1].at_us // width_us + 65) * width_us if gone else 0
        return None

    def _free_at_us(self, place: Place, hard: int, asked: int, now_us: int) -> int | None:
        """Let events expire one after another."""
        if asked > hard:
            return None
        excess = self.sum_usage(place, now_us) + asked - hard
        if excess <= 0:
            return 0
        _, seconds, resource = place
        width_us = seconds * 1_000_000 // 64
        for event in sorted(self._list_counting(place, now_us), key=lambda event: event.at_us):
            excess -= event.cost[resource]
            if excess <= 0:
                return (event.at_us // width_us + 65) * width_us
        raise AssertionError("more is in the sum than in the list")

    def _charge(self, plan: CounterPlan, namespace: str, cost: Cost, at_us: int, now_us: int) -> Event:
        places = {
            (account, window.seconds, limit.counts)
            for account, window, limit in list_limits(plan, namespace)
            if cost.get(limit.counts) and is_counted(at_us, window.seconds, now_us)
        }
        places |= {
            (account, window.seconds, found.counter)
            for account, window, limit in list_limits(plan, namespace)
            if (found := window.find_guarantees(limit)) is not None and found.counter
            if (account, window.seconds, limit.counts) in places
        }
        event = Event(at_us, cost, places)
        if places:
            self.find_time(plan).written_us = now_us
            for place in places:
                # Time never precedes the last write: expired events are of no further use.
                there = [other for other in self._events.get(place, ()) if is_counted(other.at_us, place[1], now_us)]
                self._events[place] = [*there, event]
        return event

    def _find_known(self, plan: CounterPlan, uid: str, now_us: int) -> Pod | None:
        pod = self._pods.get((plan.tag, uid))
        return pod if pod is not None and pod.expires_us > now_us and not pod.refunded else None

    def _remember(self, request: Acquire, event: Event, known: Pod | None, now_us: int) -> None:
        """Keep the first charge of a known Pod that grows: a resize is not refunded."""
        most: Cost = request.cost
        kept: Event | None = event
        if request.resize_from is not None:
            grown = {resource: request.cost[resource] for resource in _compute_growth(request, known)}
            most = {**request.resize_from, **(known.most if known else {}), **grown}
            kept = known.event if known else None
        pod = Pod(now_us + request.plan.remember_us, most, kept)
        self._pods[request.plan.tag, request.uid] = pod


def _compute_growth(request: Acquire, known: Pod | None) -> Cost:
    """Return what a running Pod takes above its maximum so far; it counts as a Pod already."""
    before = {**(request.resize_from or {}), **(known.most if known else {})}
    return {
        resource: amount - before.get(resource, 0)
        for resource, amount in request.cost.items()
        if resource != "pods" and amount > before.get(resource, 0)
    }
