"""Events: a denial on the controller that owns the Pod, what became of policy and overrides on their ConfigMaps.

An Event is one for each controller, reason and minute, and for each state of a ConfigMap, however many servers there
are; what a breaker did is told on the policy's. Pods whose controller is not known for sure have none: who asked for
them was told.
"""

import re
import time
from collections.abc import Callable, Sequence

from webhook.adapters.kubernetes.events.breaker_events import happening_of
from webhook.adapters.kubernetes.events.event_object import EventType, Happening, Regarding, in_bounds, minute_of
from webhook.adapters.kubernetes.events.event_sender import EventSender
from webhook.core.admission.decision import Half
from webhook.core.breaker import Transition
from webhook.core.document.configmap import NAME, NAMESPACE, OVERRIDES
from webhook.core.kubernetes.controllers import owning_controller
from webhook.core.overrides import Override
from webhook.core.policy.model import LoadedPolicy
from webhook.ports import Review

TOLD_MAX = 10_000
"""Controllers and reasons of one minute; what comes beyond them is not told."""

_POLICY = Regarding("v1", "ConfigMap", NAMESPACE, NAME)
_OVERRIDES = Regarding("v1", "ConfigMap", NAMESPACE, OVERRIDES)
_ERRORS_MAX = 20
_NAMESPACE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""No path is made of what is no name."""


class Events:
    """An Observer. `has_policy`, `has_overrides`: these documents are those in the ConfigMaps."""

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
        self._told: set[tuple[str, str]] = set()
        """Controllers' uids and reasons, of this minute."""

    def reviewed(self, review: Review) -> None:
        decision, request = review.decision, review.request
        if decision.allowed or decision.dry_run or decision.half is not Half.VALIDATE or request is None:
            return
        denials = decision.denials
        owner = owning_controller(request.user, request.pod) if request.pod is not None else None
        if not denials or owner is None or not _NAMESPACE_NAME.fullmatch(request.namespace):
            return
        minute, told = minute_of(review.started_ns), (owner.uid, str(denials[0].code))
        if minute != self._minute:
            self._minute = minute
            self._told.clear()
        if told in self._told:
            return
        if len(self._told) >= TOLD_MAX:
            self._sender.drop()
            return
        happening = Happening(
            Regarding(owner.api_version, owner.kind, request.namespace, owner.name, owner.uid),
            EventType.WARNING,
            reason=str(denials[0].code),
            action="CreatePod" if decision.operation == "CREATE" else "UpdatePod",
            note=in_bounds("; ".join([denials[0].message, *map(str, denials[1:])])),
            occasion=str(minute),
            at_ns=review.started_ns,
        )
        if self._sender.offer(happening):
            self._told.add(told)

    def policy_loaded(self, loaded: LoadedPolicy) -> None:
        self._in_force = loaded.hash
        note = f"policy {loaded.hash} is in force; services: {len(loaded.policy.services)}"
        self._tell(_POLICY, EventType.NORMAL, "PolicyLoaded", note, loaded.hash)

    def policy_failed(self, errors: Sequence[str]) -> None:
        stays = f"policy {self._in_force} stays in force" if self._in_force else "there is no good policy"
        self._tell(_POLICY, EventType.WARNING, "PolicyRefused", f"{stays}: {_shown(errors)}", "\n".join(errors))

    def overrides_loaded(self, live: Sequence[Override]) -> None:
        """Do nothing: what changes by it is told entry by entry."""

    def overrides_failed(self, errors: Sequence[str]) -> None:
        note = f"the last good overrides stay in force, each until its time: {_shown(errors)}"
        self._tell(_OVERRIDES, EventType.WARNING, "OverridesRefused", note, "\n".join(errors))

    def override_changed(self, service: str, former: Override | None, now: Override | None) -> None:
        reason, entry = ("OverrideEnded", former) if now is None else ("OverrideInForce", now)
        self._tell(_OVERRIDES, EventType.NORMAL, reason, f"service {service}: {entry}", f"{service} {entry}")

    def _tell(self, about: Regarding, kind: EventType, reason: str, note: str, occasion: str) -> None:
        if about in self._documents:
            at_ns = self._clock_ns()
            self._sender.offer(Happening(about, kind, reason, "Load", in_bounds(note), occasion, at_ns))

    def transitioned(self, transition: Transition) -> None:
        happening = happening_of(transition, _POLICY) if _POLICY in self._documents else None
        if happening is not None:
            self._sender.offer(happening)

    def refused(self, reason: str, detail: str) -> None:
        """Do nothing: nobody knows whose call it was."""

    def policy_judged(self, user: str, errors: Sequence[str], document: str) -> None:
        """Do nothing: `user` was told, and a policy that was refused at the door is not there."""


def _shown(errors: Sequence[str]) -> str:
    more = f" and {len(errors) - _ERRORS_MAX} more" if len(errors) > _ERRORS_MAX else ""
    return "; ".join(errors[:_ERRORS_MAX]) + more
