"""Plays events: a virtual clock, a store, and the one evaluation."""

from contextlib import AbstractAsyncContextManager
from itertools import count
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from webhook.app.offline import Offline
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.policy.model import LoadedPolicy, Policy
from webhook.core.policy_spec import Scope
from webhook.core.quota import CounterPlan
from webhook.errors import UserError
from webhook.interceptor import Interceptor, UnknownNamespaceError
from webhook.observers import Observers
from webhook.offline.policy_argument import load_policy
from webhook.offline.simulator import Ask, admit, in_words
from webhook.replay.answer_lines import breaker_of, remaining_of, used_of
from webhook.replay.events import (
    NamespacesChange,
    OutcomeFields,
    OutcomeSeen,
    OutcomesSeen,
    PodAsks,
    PodDeleted,
    PodRefused,
    PolicyChange,
    ReplayEvent,
    StatusAsked,
    StoreChange,
    SumFields,
)
from webhook.replay.outcomes import tell
from webhook.replay.pod_watch import Watching
from webhook.replay.store_outage import StoreOutage
from webhook.replay.summary import BreakerSummary
from webhook.settings import MEMORY

_SECOND_US = 1_000_000


class Replay:
    """One replay: what the world looks like so far."""

    def __init__(self, policy: Path, folder: Path, store: str) -> None:
        self._folder = folder
        self._is_shared = store != MEMORY
        offline = self._offline = Offline(self._policy(policy), store=store)
        self._outage = StoreOutage(offline.store, offline.clock)
        self._watching = Watching(self._outage)
        offline.interceptor = Interceptor(offline.policies, self._outage, offline.namespaces, Observers())
        self._plans: dict[str, CounterPlan] = {}
        self._taken: set[str] = set()
        self._numbers = count(1)
        self._ticked_second = -1
        self._summary = BreakerSummary()

    def counting(self) -> AbstractAsyncContextManager[None]:
        """Return the block within which events are played."""
        return self._offline.counting()

    async def play(self, event: ReplayEvent) -> dict[str, Any]:
        """Return what one event's line says, without `at`."""
        now_us = round(event.at * _SECOND_US)
        self._offline.clock.set(now_us)
        if now_us // _SECOND_US != self._ticked_second:
            # As the server does each second; what is asked about is up to date without it.
            self._ticked_second = now_us // _SECOND_US
            await self._watching.confirm(self._compiled.plans)
            await self._tick()
        match event:
            case PodAsks():
                return await self._pod(event)
            case OutcomeSeen(outcome=told) | OutcomesSeen(outcomes=told):
                return await self._outcome(told)
            case PodRefused():
                return {"uid": event.refused, "refunded": await self._refund(event.refused)}
            case PodDeleted():
                await self._watching.ended(event.deleted, self._compiled.plans)
                return {"uid": event.deleted, "refunded": False}
            case StatusAsked():
                return await self._status(event.status)
        await self._change(event)
        return {}

    async def breakers(self) -> list[tuple[str, ...]]:
        """Return how breakers fared up to the last event, as rows of a table; none where no event was about one."""
        await self._tick()
        return list(self._summary.rows(self._offline.clock.now_us()))

    async def _tick(self) -> None:
        plans = self._compiled.plans
        self._summary.know(plans, self._offline.clock.now_us())
        self._summary.moved(await self._outage.tick(tuple(plans.values())))

    async def _change(self, event: ReplayEvent) -> None:
        """Change the world; a line for people changes nothing."""
        match event:
            case NamespacesChange():
                self._offline.namespaces.update(event.namespace_labels)
            case PolicyChange():
                self._offline.policies.set(self._policy(self._file(event.policy)))
                await self._watching.list_all(self._compiled.plans)
                await self._tick()
            case StoreChange(store="down"):
                self._outage.take_away()
            case StoreChange():
                self._summary.moved(await self._outage.bring_back(self._compiled.plans.values()))
                await self._watching.list_all(self._compiled.plans)

    @property
    def _compiled(self) -> CompiledPolicy:
        return self._offline.compiled()

    def _policy(self, path: Path) -> LoadedPolicy:
        """Read a policy. In a Redis that others use, too, a replay must not touch what their fleet counts."""
        loaded = load_policy(path, Purpose.REPLAY)
        return replace(loaded, policy=_of_one_cluster(loaded.policy)) if self._is_shared else loaded

    def _file(self, name: str) -> Path:
        beside = self._folder / name
        return beside if beside.is_file() else Path(name)

    def _plan(self, service: str) -> CounterPlan:
        plan = self._compiled.plans.get(service)
        if plan is None:
            known = ", ".join(self._compiled.plans)
            raise UserError(f"{service!r}: no such service in the policy", f"its services are {known}")
        return plan

    async def _pod(self, event: PodAsks) -> dict[str, Any]:
        uid = event.uid or self._uid_of(event)
        self._taken.add(uid)
        ask = Ask(
            event.pod,
            event.namespace,
            uid,
            event.user,
            event.operation,
            event.sub_resource,
            event.dry_run,
            # Where nobody says what an existing Pod was, it was as it is.
            event.pod if event.old_pod is None and event.operation == "UPDATE" else event.old_pod,
        )
        try:
            admission = await admit(self._offline.interceptor, ask)
        except BadReviewError as error:
            raise UserError(in_words(error), "give a Pod as the API server would show it") from None
        except UnknownNamespaceError:
            raise UserError(
                f"namespace: {event.namespace!r}: the policy asks for its labels, which are not known here",
                "give them before, in a line with namespaceLabels",
            ) from None
        decision = admission.validated
        self._summary.decided(admission.mutated, decision)
        self._summary.moved(decision.receipt.transitions if decision.receipt is not None else ())
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
            plan = self._offline.compiled(decision.policy_hash).plans[decision.service]
            if decision.allowed and not event.dry_run and (decision.receipt is None or decision.receipt.charged):
                self._plans[uid] = plan
            if decision.allowed and not event.dry_run and event.changes_what_lives:
                await self._watching.came(uid, decision.service, admission.pod, self._compiled.plans)
            look = await self._outage.snapshot(plan, event.namespace)
            line["used"] = used_of(plan, look, event.namespace)
            line |= breaker_of(look)
        return line

    def _uid_of(self, event: PodAsks) -> str:
        """Return the uid that an existing Pod carries; a new one gets a name that nobody else has."""
        carried = (event.pod.get("metadata") or {}).get("uid") if event.operation == "UPDATE" else None
        if isinstance(carried, str) and carried:
            return carried
        return next(name for number in self._numbers if (name := f"fresh-{number}") not in self._taken)

    async def _outcome(self, told: OutcomeFields | SumFields) -> dict[str, Any]:
        plan = self._plan(told.service)
        self._summary.asked(told.service)
        self._summary.moved(await tell(self._outage, self._compiled.services[told.service], plan, told))
        look = await self._outage.snapshot(plan)
        return {"service": told.service, **breaker_of(look), "openRemaining": remaining_of(look)}

    async def _refund(self, uid: str) -> bool:
        plan = self._plans.get(uid)
        self._watching.never_was(uid)
        return plan is not None and await self._outage.refund(plan, uid)

    async def _status(self, service: str) -> dict[str, Any]:
        plan = self._plan(service)
        self._summary.asked(service)
        look = await self._outage.snapshot(plan)
        return {
            "service": service,
            **breaker_of(look),
            "openRemaining": remaining_of(look),
            "used": used_of(plan, look, None),
            "waiting": 0,
            "released": [],
        }


def _of_one_cluster(policy: Policy) -> Policy:
    """Return the policy with counters that are the replay's own: it has no other cluster to count with."""
    return replace(
        policy,
        pools=tuple(replace(pool, scope=Scope.CLUSTER) for pool in policy.pools),
        services=tuple(
            replace(service, quota=replace(service.quota, scope=Scope.CLUSTER)) if service.quota else service
            for service in policy.services
        ),
    )
