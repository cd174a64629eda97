"""Rules of `rollout`: steps that grow, each with one measure, and symptoms that can take a candidate back."""

from collections.abc import Iterator

from webhook.core.document.yaml.parts import DocumentPart
from webhook.core.document.yaml.problems import Problem
from webhook.core.policy_fields.rollout import CanaryBy, PendingRules, read_share

_MEASURES = ("namespaces", "percent")
_FEW_PERCENT = 5


def a_step_has_one_measure(document: DocumentPart) -> Iterator[Problem]:
    """`rollout.canary.steps[]`: one of `namespaces` and `percent`; with `by: Service` only `percent`."""
    by = document.get("rollout", "canary", "by")
    is_by_service = by is not None and by.read(CanaryBy) is CanaryBy.SERVICE
    for step in document.select("rollout", "canary", "steps", "*"):
        found = [name for name in _MEASURES if name in step.fields()]
        if len(found) != 1:
            reason = "says neither namespaces nor percent" if not found else "says both namespaces and percent"
            yield step.report(reason, 'write one of them, such as {percent: 5} or {namespaces: ["staging-*"]}')
        elif found == ["namespaces"] and is_by_service:
            yield step.report("by: Service moves whole services, which are in many namespaces", "write percent")


def steps_only_grow(document: DocumentPart) -> Iterator[Problem]:
    """`rollout.canary.steps[].percent`: larger than in the steps before it. Refuse one that is not."""
    before = 0
    for percent in document.select("rollout", "canary", "steps", "*", "percent"):
        if percent.read(int) <= before:
            yield percent.report(
                f"not above the {before} of a step before it", "write a larger one, or remove the step"
            )
        before = max(before, percent.read(int))


def alerts_come_later(document: DocumentPart) -> Iterator[Problem]:
    """`rollout.rollback.pending.alertAbove`: not below `above`. Refuse it."""
    defaults = PendingRules()
    for pending in document.select("rollout", "rollback", "pending"):
        above, alert = pending.get("above"), pending.get("alertAbove")
        low = defaults.above if above is None else above.read(str)
        high = defaults.alert_above if alert is None else alert.read(str)
        if read_share(high) < read_share(low):
            part = alert or above
            if part is not None:
                yield part.report(f"alertAbove {high} is below above {low}", "write alertAbove at least as large")


def a_canary_can_be_taken_back(document: DocumentPart) -> Iterator[Problem]:
    """`rollout.canary`: warn about one without `rollback`; `rollout.rollback`: about one without `canary`."""
    canary, rollback = document.get("rollout", "canary"), document.get("rollout", "rollback")
    if canary is not None and rollback is None:
        yield canary.report_field("nothing takes a candidate back: its steps end by time alone", "add rollback: {}")
    if rollback is not None and canary is None:
        yield rollback.report_field("has no effect without canary", "add canary with steps, or remove it")


def small_shares_reach_something(document: DocumentPart) -> Iterator[Problem]:
    """`rollout.canary.steps[].percent`: warn about a share of the services that is less than one service."""
    by = document.get("rollout", "canary", "by")
    if by is None or by.read(CanaryBy) is not CanaryBy.SERVICE:
        return
    services = len(document.select("services", "*"))
    for percent in document.select("rollout", "canary", "steps", "*", "percent"):
        if percent.read(int) * services < 100:  # noqa: PLR2004  percent
            yield percent.report(
                f"{percent.read(int)} % of {services} services is probably none", "write a larger one, or by: Workload"
            )
