"""Plays events: a virtual clock, a store, and the one evaluation."""

from contextlib import AbstractAsyncContextManager
from itertools import count
from pathlib import Path
from typing import Any

from webhook.cli.apiserver import Ask, admit, in_words
from webhook.cli.events import (
    Deleted,
    Event,
    NamespacesChange,
    OutcomeSeen,
    PodAsks,
    PolicyChange,
    Refused,
    StatusAsked,
)
from webhook.cli.policy_argument import load_policy
from webhook.core.breaker import BreakerView
from webhook.core.document import Purpose
from webhook.core.draft import Compiled
from webhook.core.quota import CounterPlan, Look
from webhook.core.resources import shown
from webhook.core.review import BadReviewError
from webhook.errors import UserError
from webhook.ports import Outcome
from webhook.wiring.offline import Offline

_SECOND_US = 1_000_000


class Replay:
    """One replay: what the world looks like so far."""

    def __init__(self, policy: Path, folder: Path, store: str) -> None:
        self._folder = folder
        self._offline = Offline(load_policy(policy, Purpose.REPLAY), store=store)
        self._plans: dict[str, CounterPlan] = {}
        self._taken: set[str] = set()
        self._numbers = count(1)
        self._ticked_second = -1

    def counting(self) -> AbstractAsyncContextManager[None]:
        """Return the block within which events are played."""
        return self._offline.counting()

    async def play(self, event: Event) -> dict[str, Any]:
        """Return what one event's line says, without `at`."""
        now_us = round(event.at * _SECOND_US)
        self._offline.clock.set(now_us)
        if now_us // _SECOND_US != self._ticked_second:
            # As the server does each second; what is asked about is up to date without it.
            self._ticked_second = now_us // _SECOND_US
            await self._offline.store.tick(tuple(self._compiled.plans.values()))
        match event:
            case PodAsks():
                return await self._pod(event)
            case OutcomeSeen():
                return await self._outcome(event)
            case Refused():
                return {"uid": event.refused, "refunded": await self._refund(event.refused)}
            case Deleted():
                return {"uid": event.deleted, "refunded": False}
            case StatusAsked():
                return await self._status(event.status)
            case NamespacesChange():
                self._offline.namespaces.update(event.namespace_labels)
            case PolicyChange():
                self._offline.policies.set(load_policy(self._file(event.policy), Purpose.REPLAY))
        return {}

    @property
    def _compiled(self) -> Compiled:
        return self._offline.compiled()

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
        if self._offline.misses_labels(event.namespace):
            raise UserError(
                f"namespace: {event.namespace!r}: the policy asks for its labels, which are not known here",
                "give them before, in a line with namespaceLabels",
            )
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
            plan = self._offline.compiled(decision.policy_hash).plans[decision.service]
            if decision.receipt is not None and decision.receipt.charged:
                self._plans[uid] = plan
            look = await self._offline.store.look(plan, event.namespace)
            line["used"] = _used(plan, look, event.namespace)
            line |= _breaker(look.breaker)
        return line

    def _uid_of(self, event: PodAsks) -> str:
        """Return the uid that an existing Pod carries; a new one gets a name that nobody else has."""
        carried = (event.pod.get("metadata") or {}).get("uid") if event.operation == "UPDATE" else None
        if isinstance(carried, str) and carried:
            return carried
        return next(name for number in self._numbers if (name := f"fresh-{number}") not in self._taken)

    async def _outcome(self, event: OutcomeSeen) -> dict[str, Any]:
        told = event.outcome
        plan = self._plan(told.service)
        outcome = Outcome(told.ok, round(told.latency * _SECOND_US), told.uid, told.generation)
        await self._offline.store.outcome(plan, outcome)
        look = await self._offline.store.look(plan)
        return {"service": told.service, **_breaker(look.breaker), "openRemaining": _remaining(look)}

    async def _refund(self, uid: str) -> bool:
        plan = self._plans.get(uid)
        return plan is not None and await self._offline.store.refund(plan, uid)

    async def _status(self, service: str) -> dict[str, Any]:
        plan = self._plan(service)
        look = await self._offline.store.look(plan)
        return {
            "service": service,
            **_breaker(look.breaker),
            "openRemaining": _remaining(look),
            "used": _used(plan, look, None),
            "waiting": 0,
            "released": [],
        }


def _breaker(view: BreakerView | None) -> dict[str, Any]:
    return {"breaker": view.state if view else None, "generation": view.generation if view else None}


def _remaining(look: Look) -> float | int:
    remaining_us = look.breaker.open_remaining_us(look.at_us) if look.breaker else 0
    return remaining_us // _SECOND_US if remaining_us % _SECOND_US == 0 else remaining_us / _SECOND_US


def _used(plan: CounterPlan, look: Look, namespace: str | None) -> list[dict[str, Any]]:
    """Return how full the windows are; with `per: Namespace` those of `namespace`, or of all that counted."""
    wanted = {namespace} if plan.per_namespace and namespace is not None else set(look.uses)
    return [
        {
            "window": use.window,
            "resource": use.resource,
            "used": shown(use.resource, use.used),
            "hard": shown(use.resource, use.hard),
            "of": "service",
            "name": plan.service,
            "namespace": key or None,
        }
        for key in sorted(wanted)
        for use in look.uses.get(key, ())
    ]
