"""Denials by quota, breaker or store: a stable code, the figures, and the time from which the Pod could pass."""

from datetime import UTC, datetime
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple

from webhook.core.admission.decision import Finding
from webhook.core.breaker import BreakerView, State
from webhook.core.findings import Code
from webhook.core.kubernetes.admission_request import ResponseStatus
from webhook.core.policy.model import FailureMode, Service
from webhook.core.policy.schedules import NO_SCHEDULE, describe
from webhook.core.policy_fields import Denial, Mode, RetryAfter, WhenOpen, WhenStoreUnavailable
from webhook.core.quota import Acquire, CounterPlan, DeniedBy, Holder, Receipt, Use
from webhook.core.quota.pod_cost import format_amount
from webhook.core.quota.teams import describe_team

_SECOND_US = 1_000_000


def format_utc(at_us: int) -> str:
    """Return an absolute UTC time, to the millisecond, never earlier than `at_us`."""
    moment = datetime.fromtimestamp(-(-at_us // 1000) / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def build_counter_findings(service: Service, receipt: Receipt, asked: Acquire | None = None) -> tuple[Finding, ...]:
    """Return the findings of breaker and quota, each under its own mode. `asked`: what the receipt answers."""
    objections = {*receipt.would_refuse, *((receipt.refused,) if receipt.refused else ())}
    findings = []
    if DeniedBy.BREAKER in objections and receipt.breaker is not None:
        degrades = service.breaker is not None and service.breaker.when_open is WhenOpen.DEGRADE
        if not degrades:
            findings.append(build_breaker_finding(service, receipt.breaker))
    if DeniedBy.QUOTA in objections:
        findings.append(
            _build_quota_finding(
                service.name,
                service.modes.quota,
                receipt.over,
                receipt.free_at_us,
                # The pool may have the limit.
                service.quota.denial if service.quota else Denial(),
                is_local=receipt.local,
                origin=None if asked is None else LimitOrigin.from_request(asked),
            )
        )
    return tuple(findings)


def build_store_finding(service: Service, plan: CounterPlan, cause: str) -> Finding | None:
    """Return the denial of a Pod that could not be counted, by `cause`; None if the service admits it uncounted.

    A quota applies whenStoreUnavailable. Services without a quota in force, and Pods that under `Local` could not be
    checked against the replica's share, apply failureMode.
    """
    has_quota = bool(plan.limits)
    admits = service.failure_mode is FailureMode.OPEN or not (has_quota or plan.breaker)
    if has_quota and plan.when_unavailable is not WhenStoreUnavailable.LOCAL:
        admits = plan.when_unavailable is WhenStoreUnavailable.ALLOW
    if admits:
        return None
    concern, mode = ("quota", plan.quota_mode) if has_quota else ("breaker", plan.breaker_mode)
    message = f"service {service.name}: the counters are unavailable ({cause}): try again soon"
    return Finding(Code.STORE_UNAVAILABLE, concern, mode, message)


def build_breaker_finding(service: Service, view: BreakerView) -> Finding:
    """Return the denial by an open or probing breaker: until when, why, and the remedy.

    The text changes only with the breaker's state: Kubernetes aggregates Events with equal texts.
    """
    return _format_breaker_finding(service.name, service.modes.breaker, view)


@lru_cache(maxsize=1024)  # thousands of Pods are denied by the same view
def _format_breaker_finding(name: str, mode: Mode, view: BreakerView) -> Finding:
    code = Code.BREAKER_OPEN
    if view.state is State.FORCED_OPEN:
        text = (
            f"was forced open until {format_utc(view.open_until_us)} ({view.reason});"
            f" an admin can end it: podgate breaker reset {name}"
        )
    elif view.state is State.OPEN:
        rollback = "roll back (a controller that did not cause the failures may probe early), or " if view.early else ""
        until = format_utc(view.open_until_us)
        text = (
            f"is open until {until} ({_describe_reason(view)}); probes are admitted from then on:"
            f" wait, or {rollback}have an admin run podgate breaker close|reset {name}"
        )
    else:
        code = Code.BREAKER_PROBING
        text = f"is half-open since {format_utc(view.since_us)} and all its probes are in flight: try again soon"
    return Finding(code, "breaker", mode, f"service {name}: the breaker {text}")


def _describe_reason(view: BreakerView) -> str:
    """Return why it last opened, and, if different, the figures that tripped it."""
    if not view.tripped_by or view.tripped_by == view.reason:
        return view.reason
    return f"{view.reason}; tripped by {view.tripped_by}"


class LimitOrigin(NamedTuple):
    """What a denial says of the limits besides their figures: the team, the schedule in force, and what follows it."""

    team: str = ""
    schedule: str = ""
    changes_at_us: int | None = None
    then: str = ""

    @classmethod
    def from_request(cls, asked: Acquire) -> "LimitOrigin | None":
        """Return it; None where neither teams nor schedules matter."""
        plan = asked.plan
        state, team = plan.schedule, describe_team(plan.team_key, asked.team) if plan.team_key else ""
        if state is None:
            return cls(team) if team else None
        upcoming = "no schedule" if state.upcoming is None else describe(state.upcoming)
        return cls(team, str(state), state.changes_at_us, upcoming)


@lru_cache(maxsize=1024)  # the Pods of a controller are denied over and over by the same figures
def _build_quota_finding(
    name: str,
    mode: Mode,
    over: tuple[Use, ...],
    free_at_us: int | None,
    denial: Denial,
    *,
    is_local: bool,
    origin: LimitOrigin | None,
) -> Finding:
    if denial.status == HTTPStatus.FORBIDDEN:
        # ResourceQuota's phrase, which clients already parse; it has one figure per resource, and no window.
        figures = [
            f"{label}: " + ",".join(f"{use.resource}={_format_figure(use, field)}" for use in _first_by_resource(over))
            for label, field in (("requested", "asked"), ("used", "used"), ("limited", "hard"))
        ]
        windows = ", ".join(
            f"{_format_pool(use)}{use.resource} {_describe_window(use)}{_describe_guarantee(use)}" for use in over
        )
        text = f"exceeded quota: podgate/{name}, {', '.join(figures)}; {windows}"
    else:
        text = f"service {name}: " + "; ".join(_describe_use(use) for use in over)
    if origin is not None and any(use.of is not Holder.POOL for use in over):
        notes = [origin.team] if origin.team else []
        notes += [f"schedule: {origin.schedule}"] if origin.schedule not in {"", NO_SCHEDULE} else []
        text += f" ({'; '.join(notes)})" if notes else ""
    when = _describe_wait(over, free_at_us, is_local=is_local, origin=origin)
    return Finding(Code.QUOTA_EXCEEDED, "quota", mode, f"{text}; {when}")


def _first_by_resource(over: tuple[Use, ...]) -> list[Use]:
    return list({use.resource: use for use in reversed(over)}.values())[::-1]


def _describe_use(use: Use) -> str:
    fields = ("hard", "surge", "used", "asked") if use.surge else ("hard", "used", "asked")
    figures = ", ".join(f"{field} {_format_figure(use, field)}" for field in fields)
    return f"{_format_pool(use)}{use.resource} {_describe_window(use)}: {figures}{_describe_guarantee(use)}"


def _describe_guarantee(use: Use) -> str:
    found = use.guarantee
    if found is None:
        return ""
    hard, used, kept = (format_amount(use.resource, amount) for amount in (found.hard, found.used, found.kept))
    own = f", guaranteed {hard} of which {used} used" if found.hard else ""
    return f"{own}, kept for others {kept}"


def _describe_window(use: Use) -> str:
    return "live at one time" if use.counts_live_pods else f"in {use.window}"


def _format_pool(use: Use) -> str:
    return f"pool {use.name}: " if use.of is Holder.POOL else ""


def _format_figure(use: Use, field: str) -> int | str:
    amount: int = getattr(use, field)
    return format_amount(use.resource, amount)


def _describe_wait(over: tuple[Use, ...], free_at_us: int | None, *, is_local: bool, origin: LimitOrigin | None) -> str:
    if free_at_us is None:
        if all(use.guarantee is not None and use.asked <= use.hard for use in over if use.free_at_us is None):
            return "the request exceeds what the guarantees of others leave of the limit, and can never pass"
        return "the request exceeds the whole limit and can never pass"
    whose = dict.fromkeys("pool" if use.of is Holder.POOL else "service" for use in over if use.counts_live_pods)
    others = f"enough of {' and '.join(f'the {each}' for each in whose)}'s live Pods have ended" if whose else ""
    if not free_at_us:
        return f"could pass when {others}"
    if origin is not None and free_at_us == origin.changes_at_us:
        return f"cannot pass before {format_utc(free_at_us)}, when the limits change: {origin.then}"
    text = f"could pass from {format_utc(free_at_us)}" + (f", if {others} by then" if others else "")
    if is_local:
        text += ", or when the counters are available again; until then these are this replica's shares of the limits"
    return text


def status_of(finding: Finding, service: Service | None, receipt: Receipt | None, user: str) -> ResponseStatus:
    """Return the HTTP status of a denial by its first finding."""
    if finding.concern == "breaker" or finding.code is Code.STORE_UNAVAILABLE:
        return ResponseStatus(503, "ServiceUnavailable")
    if finding.code is Code.QUEUE_FULL:
        return ResponseStatus(429, "TooManyRequests")
    if finding.code is not Code.QUOTA_EXCEEDED or service is None or receipt is None:
        return ResponseStatus(403, "Forbidden")
    denial = service.quota.denial if service.quota else Denial()  # the limit may be a pool's
    reason = "Forbidden" if denial.status == HTTPStatus.FORBIDDEN else "TooManyRequests"
    return ResponseStatus(denial.status, reason, retry_after_seconds=_retry_after(denial, receipt, user))


def _retry_after(denial: Denial, receipt: Receipt, user: str) -> int | None:
    """Return whole seconds for human users only: a controller that waits stalls all of its workers.

    Service accounts, nodes and kube-controller-manager all have names that begin with `system:`.
    """
    if denial.retry_after is RetryAfter.NEVER or user.startswith("system:"):
        return None
    if not receipt.free_at_us:
        return None
    return max(1, -(-(receipt.free_at_us - receipt.at_us) // _SECOND_US))
