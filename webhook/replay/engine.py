"""Engine of `replay`: applies events to the server's evaluation over virtual time."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from webhook.commands.simulator import Admission, Ask, admit, format_error
from webhook.core.admission.decision import Decision, Verdict
from webhook.core.admission.stages import check_recorded
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.policy.model import LoadedPolicy
from webhook.core.quota import CounterPlan
from webhook.core.quota.teams import find_team
from webhook.errors import UserError
from webhook.interceptor import Interceptor, UnknownNamespaceError
from webhook.observers import Observers
from webhook.replay.controller import ReplayController
from webhook.replay.environment import ReplayEnvironment
from webhook.replay.events import (
    NamespacesChange,
    OutcomeFields,
    OutcomeSeen,
    OutcomesSeen,
    PodAsks,
    PodBound,
    PodDeleted,
    PodRefused,
    PodUnschedulable,
    PolicyChange,
    Recorded,
    ReplayEvent,
    StatusAsked,
    StoreChange,
    SumFields,
    record,
)
from webhook.replay.queue import ReplayQueue
from webhook.replay.slots import ReplaySlots, render_slot
from webhook.replay.store_outage import StoreOutage
from webhook.replay.summary import BreakerSummary, compute_remaining, render_breaker, render_usage

_SECOND_US = 1_000_000


class PlayedEvent(NamedTuple):
    """The fields of an event's output line, without `at`; for the request of a Pod, also the decisions."""

    line: dict[str, Any]
    admission: Admission | None = None


class Replay:
    """One replay over virtual time. `load` reads a policy file; paths in events are relative to `folder`.

    `origin_us` is the time of second 0; None: that of the first description of a recording, else 1970.
    """

    def __init__(
        self,
        environment: ReplayEnvironment,
        load: Callable[[Path], LoadedPolicy],
        folder: Path,
        origin_us: int | None = None,
    ) -> None:
        self._environment = environment
        self._clock = environment.clock
        self._origin_us = origin_us
        self._load = load
        self._folder = folder
        self._outage = StoreOutage(environment.store, environment.clock)
        policies, namespaces = environment.policies, environment.namespaces
        self._summary = BreakerSummary()
        self._controller = ReplayController(
            self._outage.shared,
            lambda: self._outage.is_down,
            environment.clock,
            lambda: self._compiled,
            namespaces,
            lambda transition: self._summary.add_transitions([transition]),
        )
        self._slots = ReplaySlots(environment.slots, self._outage)
        self._queue = ReplayQueue(self._outage, environment.clock, lambda: self._compiled, self._controller)
        self._interceptor = Interceptor(
            *(policies, self._outage, namespaces, Observers()),
            on_uncounted=self._outage.book_later,
            queue=self._queue,
            pod_slots=self._slots,
            check=check_recorded,
        )
        self._plans: dict[str, CounterPlan] = {}
        self._taken: set[str] = set()
        self._numbers = count(1)
        self._ticked_second = -1

    async def play(self, event: ReplayEvent) -> PlayedEvent:
        """Apply one event."""
        if self._origin_us is None and isinstance(event, Recorded):
            self._origin_us = event.origin_us
        await self._advance(event.at)
        match event:
            case PodAsks():
                uid, admission = await self._admit(event)
                return PlayedEvent(await self._build_admission_line(uid, admission), admission)
            case OutcomeSeen(outcome=fields) | OutcomesSeen(outcomes=fields):
                return PlayedEvent(await self._play_outcome(fields))
            case PodRefused() | PodDeleted() | PodUnschedulable() | PodBound():
                return PlayedEvent(await self._play_fate(event))
            case StatusAsked():
                return PlayedEvent(await self._play_status(event.status))
        await self._change(event)
        return PlayedEvent({})

    async def admit(self, event: PodAsks) -> Admission:
        """Apply the request of a Pod, without the fields of an output line."""
        await self._advance(event.at)
        return (await self._admit(event))[1]

    async def summarize_breakers(self) -> list[tuple[str, ...]]:
        """Return the summary of breakers as rows of a table; empty if no event was about one."""
        await self._tick()
        return list(self._summary.make_rows(self._clock.now_us()))

    async def _advance(self, at_seconds: float) -> None:
        now_us = (self._origin_us or 0) + round(at_seconds * _SECOND_US)
        policies = self._environment.policies
        while not self._queue.is_empty and (at_us := policies.next_change_us) is not None and at_us <= now_us:
            # Room that a schedule makes is given at its moment.
            await self._queue.advance(at_us)
            self._clock.set(at_us)
            policies.get_current()
        await self._queue.advance(now_us)
        self._clock.set(now_us)
        if now_us // _SECOND_US != self._ticked_second:
            # Server and controller do this each second, with or without events.
            self._ticked_second = now_us // _SECOND_US
            await self._controller.round()
            await self._tick()

    async def _tick(self) -> None:
        plans = {plan.service: plan for plan in self._compiled.list_breakers()}
        self._summary.set_plans(plans, self._clock.now_us())
        self._summary.add_transitions(await self._outage.tick(tuple(plans.values())))
        for uid in await self._slots.list_evicted(self._compiled):
            await self._delete(uid)

    async def _delete(self, uid: str) -> None:
        await self._slots.free(uid)
        await self._controller.report_deletion(uid)
        await self._queue.remove(uid)

    async def _play_fate(self, event: PodRefused | PodDeleted | PodUnschedulable | PodBound) -> dict[str, Any]:
        match event:
            case PodRefused(refused=uid):
                await self._slots.free(uid)
                return {"uid": uid, "refunded": await self._refund(uid)}
            case PodDeleted(deleted=uid):
                await self._delete(uid)
                return {"uid": uid, "refunded": False}
            case PodBound(bound=uid) | PodUnschedulable(unschedulable=uid):
                return await self._slots.report(uid, self._compiled, is_bound=isinstance(event, PodBound))

    async def _change(self, event: ReplayEvent) -> None:
        """Apply a change of policy, Namespace labels or store; other events change nothing."""
        match event:
            case NamespacesChange():
                self._environment.namespaces.update(event.namespace_labels)
            case PolicyChange():
                self._environment.policies.set(self._load(self._find_file(event.policy)))
                await self._controller.list_all()
                await self._tick()
            case StoreChange(store="down"):
                self._outage.take_away()
            case StoreChange():
                await self._outage.bring_back(self._compiled.list_breakers())
                await self._controller.list_all()

    @property
    def _compiled(self) -> CompiledPolicy:
        return self._environment.policies.get_current()

    def _find_file(self, name: str) -> Path:
        beside = self._folder / name
        return beside if beside.is_file() else Path(name)

    def _find_plan(self, service: str) -> CounterPlan:
        plan = self._compiled.plans.get(service)
        if plan is None:
            known = ", ".join(self._compiled.plans)
            raise UserError(f"{service!r}: no such service in the policy", f"its services are {known}")
        return plan

    async def _admit(self, event: PodAsks) -> tuple[str, Admission]:
        """Ask for a Pod, and let queue and controller know of it; return its uid, too."""
        uid = event.uid or self._choose_uid(event)
        self._taken.add(uid)
        ask = Ask(
            event.pod,
            event.namespace,
            uid,
            event.user,
            event.operation,
            event.sub_resource,
            event.dry_run,
            # Without `oldPod`, an existing Pod is taken as unchanged.
            event.pod if event.old_pod is None and event.operation == "UPDATE" else event.old_pod,
        )
        try:
            admission = await admit(self._interceptor, ask)
        except BadReviewError as error:
            raise UserError(format_error(error), "give a Pod as the API server would show it") from None
        except UnknownNamespaceError:
            raise UserError(
                f"namespace: {event.namespace!r}: the policy asks for its labels, which are not known here",
                "give them before, in a line with namespaceLabels",
            ) from None
        decision, receipt = admission.validated, admission.validated.charge.receipt
        self._summary.add_decisions(admission.mutated, decision)
        self._summary.add_transitions(() if receipt is None else receipt.transitions)
        if decision.service is not None and not event.dry_run:
            plan = self._find_plan_of(decision)
            if decision.allowed and (receipt is None or receipt.charged):
                self._plans[uid] = plan
            await self._slots.settle(uid, is_admitted=decision.allowed)
            if decision.allowed and event.changes_what_lives:
                await self._controller.report_admission(uid, admission.pod)
            if decision.verdict is Verdict.QUEUE:
                scope = self._find_scope(decision, plan) if plan.per_namespace else ""
                await self._queue.add(uid, plan, scope, admission.pod)
        return uid, admission

    async def _build_admission_line(self, uid: str, admission: Admission) -> dict[str, Any]:
        decision = admission.validated
        status: dict[str, Any] = {"code": decision.status.code}
        if not decision.allowed:
            status |= {"reason": decision.status.reason, "message": decision.status.message}
        line: dict[str, Any] = {
            "uid": uid,
            "service": decision.service,
            "decision": decision.verdict,
            "allowed": decision.allowed,
            "status": status,
            "used": [],
            "breaker": None,
            "generation": None,
        }
        if decision.service is not None:
            plan = self._find_plan_of(decision)
            scope = self._find_scope(decision, plan)
            snapshot = await self._outage.snapshot(plan, scope)
            line["used"] = render_usage(plan, snapshot, scope)
            line |= render_breaker(snapshot)
        return line | render_slot(decision.inputs.slot)

    def _find_plan_of(self, decision: Decision) -> CounterPlan:
        """Return the counters of the service, by the policy that decided."""
        policies = self._environment.policies
        assert decision.service is not None  # noqa: S101  only called for a Pod of a service
        return (policies.find_by_hash(decision.policy_hash) or policies.get_current()).plans[decision.service]

    def _find_scope(self, decision: Decision, plan: CounterPlan) -> str:
        """Return the namespace of a Pod, or its team where teams count apart."""
        if not plan.team_key:
            return decision.call.namespace
        return find_team(self._compiled.services[plan.service].quota, decision.inputs.namespace_values)

    def _choose_uid(self, event: PodAsks) -> str:
        """Return the uid of an existing Pod, or an unused name for a new one."""
        metadata = event.pod.get("metadata") if event.operation == "UPDATE" else None
        if isinstance(metadata, dict) and isinstance(carried := metadata.get("uid"), str) and carried:
            return carried
        return next(name for number in self._numbers if (name := f"fresh-{number}") not in self._taken)

    async def _play_outcome(self, fields: OutcomeFields | SumFields) -> dict[str, Any]:
        plan = self._find_plan(fields.service)
        self._summary.mark_seen(fields.service)
        service = self._compiled.services[fields.service]
        self._summary.add_transitions(await record(self._outage, self._controller, service, plan, fields))
        snapshot = await self._outage.snapshot(plan)
        return {"service": fields.service, **render_breaker(snapshot), "openRemaining": compute_remaining(snapshot)}

    async def _refund(self, uid: str) -> bool:
        plan = self._plans.get(uid)
        await self._controller.report_deletion(uid)
        return plan is not None and await self._outage.refund(plan, uid)

    async def _play_status(self, service: str) -> dict[str, Any]:
        plan = self._find_plan(service)
        self._summary.mark_seen(service)
        snapshot = await self._outage.snapshot(plan)
        return {
            "service": service,
            **render_breaker(snapshot),
            "openRemaining": compute_remaining(snapshot),
            "used": render_usage(plan, snapshot, None),
            "waiting": self._queue.count_waiting(service),
            **self._queue.take_left(service),
            **await self._slots.render(service, self._compiled.shares.get(service)),
        }
