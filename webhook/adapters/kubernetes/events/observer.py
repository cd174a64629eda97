"""Observer that sends Events: denials on the Pod's controller, policy, overrides and breakers on ConfigMaps.

There is one Event per controller, reason and minute, and one per state of a ConfigMap, whatever the number of servers.
Breaker transitions are reported on the policy's ConfigMap. A Pod without a verified controller gets no Event: its
creator receives the denial itself.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence

from webhook.adapters.kubernetes.events.event_object import EventType, Happening, Regarding, minute_of
from webhook.adapters.kubernetes.events.event_sender import EventSender
from webhook.core.admission.decision import Half
from webhook.core.breaker import State, Transition
from webhook.core.document.configmap import NAME, NAMESPACE, OVERRIDES, PART_PREFIX
from webhook.core.kubernetes.controllers import find_owning_controller
from webhook.core.overload import OverloadCause
from webhook.core.overrides import Override
from webhook.core.policy.model import LoadedPolicy
from webhook.core.rollout.changes import RolloutChange
from webhook.core.rollout.state import RolloutView
from webhook.ports import Review

_REASONS = {
    State.OPEN: ("BreakerOpened", EventType.WARNING),
    State.HALF_OPEN: ("BreakerHalfOpen", EventType.NORMAL),
    State.CLOSED: ("BreakerClosed", EventType.NORMAL),
    State.FORCED_OPEN: ("BreakerForcedOpen", EventType.WARNING),
    State.FORCED_CLOSED: ("BreakerForcedClosed", EventType.WARNING),
}
_HELD = "BreakerTripHeld"
_ACTION = "MoveBreaker"


def make_transition_event(transition: Transition, policy: Regarding) -> Happening | None:
    """Return the Event; None if there is none to send. A trip held back each second is reported once a minute.

    Service, generation and the time in the breaker's record identify the Event for all replicas. A generation alone is
    not unique: it restarts with an empty store.
    """
    at_ns = transition.at_us * 1000
    if transition.is_change:
        reason, kind = _REASONS[transition.new]
        change = f"was {transition.old}, is {transition.new}: {transition.reason}"
        occasion = f"{transition.service} {transition.generation} {transition.at_us}"
    elif transition.is_held_back:
        reason, kind, change = _HELD, EventType.WARNING, f"stays {transition.new}: {transition.reason}"
        occasion = f"{transition.service} {transition.generation} {minute_of(at_ns)}"
    else:
        return None
    note = f"{transition.owner}: the breaker {change} (generation {transition.generation})"
    return Happening(policy, kind, reason, _ACTION, note, occasion, at_ns, of_version=False)


SEEN_MAX = 10_000
"""Maximum number of controllers and reasons per minute; further Events are dropped."""

_POLICY = Regarding("v1", "ConfigMap", NAMESPACE, NAME)
_OVERRIDES = Regarding("v1", "ConfigMap", NAMESPACE, OVERRIDES)
_ERRORS_MAX = 20
_NAMESPACE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""An invalid name must not become part of a path."""


class Events:
    """An Observer. `has_policy` and `has_overrides`: the document is read from its ConfigMap."""

    def __init__(
        self,
        sender: EventSender,
        *,
        has_policy: bool,
        has_overrides: bool,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._sender = sender
        self._documents = {*([_POLICY] if has_policy else []), *([_OVERRIDES] if has_overrides else [])}
        self._clock_ns = clock_ns
        self._in_force = ""
        self._minute = 0
        self._seen: set[tuple[str, str]] = set()
        """Controller uids and reasons already sent in this minute."""

    def on_reviewed(self, review: Review) -> None:
        decision, request = review.decision, review.request
        if decision.allowed or decision.call.dry_run or decision.half is not Half.VALIDATE or request is None:
            return
        denials = decision.denials
        owner = find_owning_controller(request.user, request.pod) if request.pod is not None else None
        if not denials or owner is None or not _NAMESPACE_NAME.fullmatch(request.namespace):
            return
        minute, denial = minute_of(review.started_ns), (owner.uid, str(denials[0].code))
        if minute != self._minute:
            self._minute = minute
            self._seen.clear()
        if denial in self._seen:
            return
        if len(self._seen) >= SEEN_MAX:
            self._sender.drop()
            return
        happening = Happening(
            Regarding(owner.api_version, owner.kind, request.namespace, owner.name, owner.uid),
            EventType.WARNING,
            reason=str(denials[0].code),
            action="CreatePod" if decision.call.operation == "CREATE" else "UpdatePod",
            note="; ".join([denials[0].message, *map(str, denials[1:])]),
            occasion=str(minute),
            at_ns=review.started_ns,
        )
        if self._sender.offer(happening):
            self._seen.add(denial)

    def on_policy_loaded(self, loaded: LoadedPolicy) -> None:
        self._in_force = loaded.hash
        note = f"policy {loaded.hash} is in force; services: {len(loaded.policy.services)}"
        self._post(_POLICY, EventType.NORMAL, "PolicyLoaded", note, loaded.hash)

    def on_policy_failed(self, errors: Sequence[str]) -> None:
        stays = f"policy {self._in_force} stays in force" if self._in_force else "there is no good policy"
        self._post(_POLICY, EventType.WARNING, "PolicyRefused", f"{stays}: {_join_errors(errors)}", "\n".join(errors))

    def on_policy_parts_checked(self, problems: Mapping[str, Sequence[str]]) -> None:
        for part, errors in problems.items() if _POLICY in self._documents else ():
            about = Regarding("v1", "ConfigMap", NAMESPACE, f"{PART_PREFIX}{part}")
            note = f"the former services of part {part} stay: {_join_errors(errors)}"
            text = "\n".join(errors)
            self._sender.offer(
                Happening(about, EventType.WARNING, "PolicyPartRefused", "Load", note, text, self._clock_ns())
            )

    def on_rollout_changed(self, former: RolloutView, now: RolloutView) -> None:
        """Do nothing: `on_rollout_advanced` reports the rollout, once for all processes."""

    def on_rollout_advanced(self, change: RolloutChange) -> None:
        kind = EventType.WARNING if change.reason.is_warning else EventType.NORMAL
        if _POLICY in self._documents:
            happening = (_POLICY, kind, change.reason, "AdvanceRollout", change.note, change.occasion, self._clock_ns())
            self._sender.offer(Happening(*happening, of_version=False))

    def on_overrides_loaded(self, live: Sequence[Override]) -> None:
        """Do nothing: `on_override_changed` reports each change."""

    def on_overrides_failed(self, errors: Sequence[str]) -> None:
        note = f"the last good overrides stay in force, each until its time: {_join_errors(errors)}"
        self._post(_OVERRIDES, EventType.WARNING, "OverridesRefused", note, "\n".join(errors))

    def on_override_changed(self, service: str, former: Override | None, now: Override | None) -> None:
        reason, entry = ("OverrideEnded", former) if now is None else ("OverrideInForce", now)
        self._post(_OVERRIDES, EventType.NORMAL, reason, f"service {service}: {entry}", f"{service} {entry}")

    def on_webhooks_outdated(self, outdated: Sequence[str]) -> None:
        if outdated:
            note = f"the API server does not call as policy {self._in_force} needs: {_join_errors(outdated)}"
            self._post(_POLICY, EventType.WARNING, "WebhooksOutdated", note, "\n".join([self._in_force, *outdated]))

    def on_not_reviewed(self, service: str, pod: str) -> None:
        note = f"service {service}: Pod {pod} was admitted without a review: the API server did not call; podgate check"
        occasion = f"{service} {minute_of(self._clock_ns())}"
        self._post(_POLICY, EventType.WARNING, "PodsNotReviewed", note, occasion)

    def on_overload_changed(self, former: Mapping[OverloadCause, str], now: Mapping[OverloadCause, str]) -> None:
        at_ns = self._clock_ns()  # the occasion: each server judges itself
        if not former:
            note = f"new Pods of services with onOverload: Gate wait: {'; '.join(now.values())}"
            self._post(_POLICY, EventType.WARNING, "Overloaded", note, str(at_ns))
        elif not now:
            self._post(_POLICY, EventType.NORMAL, "OverloadEnded", "Pods are judged again", str(at_ns))

    def _post(self, about: Regarding, kind: EventType, reason: str, note: str, occasion: str) -> None:
        if about in self._documents:
            at_ns = self._clock_ns()
            self._sender.offer(Happening(about, kind, reason, "Load", note, occasion, at_ns))

    def on_transition(self, transition: Transition) -> None:
        happening = make_transition_event(transition, _POLICY) if _POLICY in self._documents else None
        if happening is not None:
            self._sender.offer(happening)

    def on_refused(self, reason: str, detail: str) -> None:
        """Do nothing: the caller is unknown."""

    def on_policy_judged(self, user: str, errors: Sequence[str], document: str) -> None:
        """Do nothing: `user` received the errors, and a rejected policy is not stored."""


def _join_errors(errors: Sequence[str]) -> str:
    more = f" and {len(errors) - _ERRORS_MAX} more" if len(errors) > _ERRORS_MAX else ""
    return "; ".join(errors[:_ERRORS_MAX]) + more
