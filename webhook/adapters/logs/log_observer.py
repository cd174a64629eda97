"""Structured logs: rate-limited denials, every Nth of the other reviews, and all events that concern an operator."""

import logging
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Any

from webhook.adapters.logs.lines import LINES_PER_SECOND_MAX, BoundedLines, JsonLines, StandardLogging, clip
from webhook.core.admission.decision import Decision
from webhook.core.breaker import State, Transition
from webhook.core.kubernetes.admission_request import ALLOWED
from webhook.core.overload import OverloadCause
from webhook.core.overrides import Override
from webhook.core.policy.model import LoadedPolicy, Policy
from webhook.core.policy_fields import Mode
from webhook.core.quota.counter_resets import find_resets
from webhook.core.rollout.changes import RolloutChange
from webhook.core.rollout.state import RolloutView
from webhook.ports import Review

SAMPLE_EVERY = 100
_ERRORS_MAX = 50
_WARNING_STATES = frozenset({State.OPEN, State.FORCED_OPEN, State.FORCED_CLOSED})
_OUR_FAULT = 500  # unlike 503, which is a decision: a breaker is open, or a Namespace is unknown


class Logs:
    """An Observer. `sample_every` N logs every Nth review that is not denied; 0 logs none of them.

    `denials_per_second_max` limits the denials logged per service and code.
    """

    def __init__(
        self,
        lines: JsonLines | None = None,
        *,
        sample_every: int = SAMPLE_EVERY,
        refusals_per_second_max: int = LINES_PER_SECOND_MAX,
        denials_per_second_max: int = LINES_PER_SECOND_MAX,
    ) -> None:
        self._lines = lines or JsonLines()
        self._refusals = BoundedLines(self._lines, refusals_per_second_max)
        self._denials_per_second_max = denials_per_second_max
        self._denials: dict[tuple[str, str], BoundedLines] = {}
        """By service ("" if no service owns the Pod) and code."""
        self._sample_every = sample_every
        self._until_sample = sample_every
        self._former: tuple[list[logging.Handler], int] | None = None
        self._policy: Policy | None = None

    def on_reviewed(self, review: Review) -> None:
        if review.decision.status is not ALLOWED:
            self._write_denial(review)
            return
        self._until_sample -= 1
        if not self._until_sample:  # never, if it starts at 0
            self._until_sample = self._sample_every
            self._lines.write("info", "reviewed", **_list_fields(review), sample_every=self._sample_every)

    def _write_denial(self, review: Review) -> None:
        decision, status = review.decision, review.decision.status
        key = decision.service or "", _find_code(decision)
        bounded = self._denials.get(key)
        if bounded is None:
            service, code = key
            bounded = BoundedLines(self._lines, self._denials_per_second_max, service=service, code=code)
            self._denials[key] = bounded
        if bounded.has_room():
            level = "error" if status.code == _OUR_FAULT else "warning"
            bounded.put(level, "denied", **_list_fields(review), status=status.code, message=clip(status.message))

    def on_transition(self, transition: Transition) -> None:
        level, message = _describe_transition(transition)
        service, variant = transition.owner
        of_variant = {"variant": variant} if variant else {}
        self._lines.write(
            level,
            message,
            service=service,
            **of_variant,
            old=transition.old,
            new=transition.new,
            reason=transition.reason,
            generation=transition.generation,
        )

    def on_refused(self, reason: str, detail: str) -> None:
        self._refusals.write("warning", "call refused", reason=reason, detail=clip(detail))

    def on_policy_loaded(self, loaded: LoadedPolicy) -> None:
        services = len(loaded.policy.services)
        fresh = [] if self._policy is None else list(islice(find_resets(self._policy, loaded.policy), _ERRORS_MAX))
        self._policy = loaded.policy
        self._keep({"", *(service.name for service in loaded.policy.services)})
        self._lines.write("info", "policy loaded", policy_hash=loaded.hash, services=services, starts_empty=fresh)

    def _keep(self, services: Collection[str]) -> None:
        """Report the suppressed lines of services that are gone, and remove these."""
        for key in [key for key in self._denials if key[0] not in services]:
            self._denials.pop(key).close()

    def on_policy_failed(self, errors: Sequence[str]) -> None:
        shown = [clip(error) for error in errors[:_ERRORS_MAX]]
        self._lines.write("error", "policy rejected", errors=shown, count=len(errors))

    def on_policy_parts_checked(self, problems: Mapping[str, Sequence[str]]) -> None:
        if not problems:
            self._lines.write("info", "all parts of the policy are valid")
        for part, errors in problems.items():
            shown = [clip(error) for error in errors[:_ERRORS_MAX]]
            self._lines.write("error", "part of the policy rejected", part=part, errors=shown, count=len(errors))

    def on_rollout_changed(self, former: RolloutView, now: RolloutView) -> None:
        if now.problem and now.problem != former.problem:
            message = "rollout not followed, the policy in force stays"
            self._lines.write("error", message, policy_hash=now.stable or None, reason=clip(now.problem))
            return
        if former.problem and not now.problem:
            self._lines.write("info", "rollout followed again", reason=clip(former.problem))
        self._lines.write("info", "rollout", **_list_rollout_fields(now))

    def on_rollout_advanced(self, change: RolloutChange) -> None:
        level = "warning" if change.reason.is_warning else "info"
        self._lines.write(
            level, "rollout advanced", change=change.reason, policy_hash=change.policy_hash, reason=clip(change.note)
        )

    def on_policy_judged(self, user: str, errors: Sequence[str], document: str) -> None:
        shown = [clip(error) for error in errors[:_ERRORS_MAX]]
        level, message = ("warning", "rejected on admission") if errors else ("info", "admitted")
        message = f"{document} {message}"
        self._lines.write(level, message, user=clip(user), errors=shown, count=len(errors) or None)

    def on_overrides_loaded(self, live: Sequence[Override]) -> None:
        self._lines.write("info", "overrides loaded", live=len(live))

    def on_overrides_failed(self, errors: Sequence[str]) -> None:
        shown = [clip(error) for error in errors[:_ERRORS_MAX]]
        self._lines.write("error", "overrides rejected, the last good ones stay", errors=shown, count=len(errors))

    def on_override_changed(self, service: str, former: Override | None, now: Override | None) -> None:
        level, message = ("info", "override ended") if now is None else ("warning", "override live")
        shown = {key: clip(str(entry)) for key, entry in (("former", former), ("override", now)) if entry}
        self._lines.write(level, message, service=service, **shown)

    def on_webhooks_outdated(self, outdated: Sequence[str]) -> None:
        level = "warning" if outdated else "info"
        message = f"webhook configurations {'differ from' if outdated else 'agree with'} the policy"
        self._lines.write(level, message, **({"outdated": [clip(text) for text in outdated]} if outdated else {}))

    def on_not_reviewed(self, service: str, pod: str) -> None:
        message = "a Pod was admitted without a review: the API server did not call"
        self._lines.write("error", message, service=service, pod=clip(pod))

    def on_overload_changed(self, former: Mapping[OverloadCause, str], now: Mapping[OverloadCause, str]) -> None:
        if not former:
            message = "overloaded: new Pods of services with onOverload: Gate wait"
            self._lines.write("warning", message, reason="; ".join(now.values()))
        elif not now:
            self._lines.write("info", "no longer overloaded")

    def write_event(self, level: str, message: str, /, **fields: Any) -> None:
        """Log an event of the server's lifecycle: started, draining, certificate rotated."""
        self._lines.write(level, message, **fields)

    def adopt_standard_logging(self, level: int = logging.WARNING) -> None:
        """Route `logging` (asyncio, aiohttp, ...) here, replacing its handlers until `close`."""
        root = logging.getLogger()
        self._former = (list(root.handlers), root.level)
        root.handlers[:] = [StandardLogging(self._lines)]
        root.setLevel(level)

    def close(self) -> None:
        """Report how many lines were suppressed; restore the handlers of `logging`."""
        self._refusals.close()
        self._keep(())
        if self._former is not None:
            root = logging.getLogger()
            root.handlers[:], level = self._former
            root.setLevel(level)
            self._former = None


def _describe_transition(transition: Transition) -> tuple[str, str]:
    """Return level and message: error for a suppressed trip, warning for an open or forced breaker or a lost probe."""
    if transition.is_change:
        return ("warning" if transition.new in _WARNING_STATES else "info"), "breaker transition"
    if transition.is_held_back:
        return "error", "breaker trip suppressed"
    return "warning", "breaker probe expired"


def _list_fields(review: Review) -> dict[str, Any]:
    decision = review.decision
    return {
        "uid": decision.review_uid,
        "half": decision.half,
        "operation": decision.call.operation,
        "sub_resource": decision.call.sub_resource,
        "dry_run": decision.call.dry_run or None,
        "service": decision.service,
        "decision": decision.verdict,
        "code": _find_code(decision),
        "degraded": decision.deviation.degraded,
        "overload": decision.deviation.overload,
        "slot": None if decision.inputs.slot is None else decision.inputs.slot.slot,
        "variant": None if decision.inputs.slot is None else decision.inputs.slot.variant,
        "findings": [f"{finding.code}/{finding.mode}" for finding in decision.findings],
        "would_rewrite": [f"{write.concern}/{write.mode}" for write in decision.would_write],
        "user": clip(decision.call.user),
        "namespace": decision.call.namespace,
        "pod": decision.pod,
        "pod_uid": decision.pod_uid,
        "workload": decision.workload,
        "duration_ms": round(review.duration_ns / 1e6, 3),
        "policy_hash": decision.policy_hash,
        "client_id": review.caller.client_id if review.caller else None,
    }


def _list_rollout_fields(view: RolloutView) -> dict[str, str | int | None]:
    """Return what a view says, without what it does not have."""
    state = view.state
    if state is None:
        return {"policy_hash": view.stable or None}
    has_candidate = bool(state.candidate)
    return {
        "policy_hash": view.stable or None,
        "phase": state.phase,
        "candidate": state.candidate or None,
        "step": state.step if has_candidate else None,
        "pinned": None if state.pinned is None else clip(state.pinned.reason),
        "paused": None if state.paused is None else clip(state.paused.reason),
        "waits_for": clip(state.waits_for) or None,
    }


def _find_code(decision: Decision) -> str:
    """Return the stable code of a denial: the code of the first finding that denies."""
    for finding in decision.findings:
        if finding.mode is Mode.ENFORCE:
            return finding.code
    return ""
