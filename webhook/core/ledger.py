"""One Pod against its service's counters, as one indivisible script: what a store does between two other calls.

Whatever stands behind `ports.CounterStore` does exactly this, in this order; a script elsewhere is held against it.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from webhook.core import breaker_states
from webhook.core.breaker import BreakerPlan, BreakerView, State, Transition
from webhook.core.quota import Acquire, Cost, CounterPlan, Look, Receipt, Refusal, all_free_at_us
from webhook.core.service_state import NO_COST, Judged, PodRecord, ServiceState
from webhook.core.stanzas import Mode


class _Breaker:
    """The breaker during one script: it moves, and is written at the end or not at all. Without a plan it is none."""

    __slots__ = ("_now_us", "_plan", "record", "transitions")

    def __init__(self, state: ServiceState, plan: BreakerPlan | None, now_us: int) -> None:
        self._plan, self._now_us = plan, now_us
        self.record = state.breaker
        self.transitions: tuple[Transition, ...] = ()
        if plan is not None:
            self._move(breaker_states.advance(self.record, plan, now_us))

    def _move(self, step: breaker_states.Step) -> None:
        self.record, transitions = step
        if transitions:
            self.transitions += transitions

    def admits(self) -> bool:
        if self._plan is None or self.record.state is State.CLOSED:
            return True
        return breaker_states.admits(self.record, self._plan, self._now_us)

    def quota_event(self, source: str) -> None:
        if self._plan is not None:
            self._move(breaker_states.quota_event(self.record, self._plan, self._now_us, source))

    def take_probe(self, uid: str) -> bool:
        """Let the charged Pod be a probe if one is wanted; whether it was."""
        before = self.record
        if self._plan is None or before.state is not State.HALF_OPEN:
            return False
        self._move(breaker_states.take_probe(before, self._plan, self._now_us, uid))
        return self.record is not before

    def view(self) -> BreakerView | None:
        return None if self._plan is None else breaker_states.view(self.record, self._plan, self._now_us)


def acquire(state: ServiceState, request: Acquire, now_us: int) -> Receipt:
    """Judge one Pod and, unless it only peeks, charge it: all or nothing, each uid once."""
    plan, scope = request.plan, _scope(request)
    now_us = state.now(now_us)
    if request.resize_from is not None:
        return _resize(state, request, request.resize_from, now_us)
    breaker = _Breaker(state, plan.breaker, now_us)
    if state.pod(request.uid, now_us) is not None:
        uses = tuple(one.use() for one in state.judge(plan, scope, NO_COST, now_us))
        return Receipt(now_us, repeated=True, uses=uses, breaker=breaker.view())

    refused: Refusal | None = None
    would_refuse: tuple[Refusal, ...] = ()
    if not breaker.admits():
        refused, would_refuse = _objection(Refusal.BREAKER, plan.breaker_mode, would_refuse)
    judged = state.judge(plan, scope, request.cost if refused is None else NO_COST, now_us)
    if not _fits(judged):
        refused, would_refuse = _objection(Refusal.QUOTA, plan.quota_mode, would_refuse)

    if request.peek:
        return _receipt(now_us, judged, refused, would_refuse, breaker.view())
    if refused is None:
        charges = state.charge(plan, scope, request.cost, now_us)
        generation = breaker.record.generation
        probe = breaker.take_probe(request.uid)
        expires_us = now_us + plan.remember_us
        record = PodRecord(expires_us, request.cost, scope, now_us, charges, generation, probe)
        state.remember(request.uid, record)
    elif refused is Refusal.QUOTA:
        breaker.quota_event(request.event_source)
    state.breaker, state.last_us = breaker.record, now_us
    return _receipt(now_us, judged, refused, would_refuse, breaker.view(), breaker.transitions, charged=refused is None)


def _resize(state: ServiceState, request: Acquire, old: Cost, now_us: int) -> Receipt:
    """Charge a running Pod what it takes above the most it ever took. The breaker is not asked, and hears nothing."""
    plan, scope, known = request.plan, _scope(request), state.pod(request.uid, now_us)
    before = {**old, **known.high_water} if known is not None else old
    more = {
        resource: amount - before.get(resource, 0)
        for resource, amount in request.cost.items()
        if amount > before.get(resource, 0) and resource != "pods"
    }
    judged = state.judge(plan, scope, more, now_us)
    refused: Refusal | None = None
    would_refuse: tuple[Refusal, ...] = ()
    if not _fits(judged):
        refused, would_refuse = _objection(Refusal.QUOTA, plan.quota_mode, would_refuse)

    written = refused is None and not request.peek
    if written:
        state.charge(plan, scope, more, now_us)
        record = known or PodRecord(0, NO_COST, generation=state.breaker.generation)
        high_water = {**before, **{resource: request.cost[resource] for resource in more}}
        state.remember(request.uid, replace(record, expires_us=now_us + plan.remember_us, high_water=high_water))
        state.last_us = now_us
    view = _Breaker(state, plan.breaker, now_us).view()
    return _receipt(now_us, judged, refused, would_refuse, view, charged=written and bool(more))


def refund(state: ServiceState, uid: str, now_us: int) -> bool:
    """Give back, once, what a Pod that never came to be was charged, and its place as a probe."""
    now_us = state.now(now_us)
    record = state.pod(uid, now_us)
    if record is None:
        return False
    state.remember(uid, replace(record, refunded=True))
    state.last_us = now_us
    if record.probe:
        state.breaker = breaker_states.give_back_probe(state.breaker, uid)
    return state.give_back(record, now_us)


def outcome(
    state: ServiceState,
    plan: CounterPlan,
    now_us: int,
    *,
    ok: bool,
    latency_us: int,
    uid: str | None = None,
    generation: int | None = None,
) -> tuple[Transition, ...]:
    """Tell the breaker how one request or Pod fared; no generation means the current one."""
    if plan.breaker is None:
        return ()
    now_us = state.last_us = state.now(now_us)
    state.breaker, transitions = breaker_states.outcome(
        state.breaker, plan.breaker, now_us, ok=ok, latency_us=latency_us, uid=uid, generation=generation
    )
    return transitions


def look(state: ServiceState, plan: CounterPlan, now_us: int, namespace: str = "") -> Look:
    """Return how the service stands; writes nothing. One unit is asked of each limit, to say when any is free.

    Where namespaces count apart, those in which anything counts are shown, and `namespace` in any case.
    """
    now_us = state.now(now_us)
    one_of_each = {limit.counts: 1 for window in plan.windows for limit in window.limits}
    counting = {*state.scopes(now_us), *([namespace] if namespace else [])}
    scopes = sorted(counting) if plan.per_namespace else [""]
    uses = {scope: tuple(one.use() for one in state.judge(plan, scope, one_of_each, now_us)) for scope in scopes}
    return Look(now_us, uses if plan.windows else {}, _Breaker(state, plan.breaker, now_us).view())


def tick(state: ServiceState, plan: CounterPlan, now_us: int) -> tuple[Transition, ...]:
    """Do what the time alone brings about under the policy of today, and forget what no longer counts."""
    now_us = state.now(now_us)
    breaker = _Breaker(state, plan.breaker, now_us)
    state.breaker = breaker_states.restarted(breaker.record) if plan.breaker is None else breaker.record
    state.last_us = now_us
    state.sweep(now_us)
    return breaker.transitions


def _scope(request: Acquire) -> str:
    return request.namespace if request.plan.per_namespace else ""


def _fits(judged: Iterable[Judged]) -> bool:
    for one in judged:  # noqa: SIM110  every Pod comes by here, and a generator costs more than what it would look at
        if one.free_at_us != 0:
            return False
    return True


def _objection(
    guard: Refusal, mode: Mode, would_refuse: tuple[Refusal, ...]
) -> tuple[Refusal | None, tuple[Refusal, ...]]:
    """Return (refused, would_refuse): a guard that is not enforced refuses nothing and is named all the same."""
    return (guard, would_refuse) if mode is Mode.ENFORCE else (None, (*would_refuse, guard))


def _receipt(
    now_us: int,
    judged: Iterable[Judged],
    refused: Refusal | None,
    would_refuse: tuple[Refusal, ...],
    breaker: BreakerView | None,
    transitions: tuple[Transition, ...] = (),
    *,
    charged: bool = False,
) -> Receipt:
    over = tuple([one.use() for one in judged if one.free_at_us != 0])
    return Receipt(
        at_us=now_us,
        refused=refused,
        would_refuse=would_refuse,
        charged=charged,
        uses=tuple([one.use(charged=charged) for one in judged]),
        over=over,
        free_at_us=all_free_at_us(over),
        breaker=breaker,
        transitions=transitions,
    )
