"""What status, metrics, records, explain, queue and Events say agrees with the history."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.chaos.checkers.bounds import REBOOKED_SECONDS, list_ends
from tests.chaos.checkers.counted import LimitKey, read_amount, read_seconds
from tests.chaos.checkers.denials import StoredUse
from tests.chaos.checkers.facts import Facts, has_gate
from tests.chaos.checkers.faults import SETTLE_SECONDS
from tests.chaos.checkers.judging import Judge
from tests.chaos.history import End
from webhook.core.findings import Code
from webhook.core.quota import STANDING, Holder
from webhook.core.quota.amounts import canonicalize

STATUS_SECONDS = 3.0
"""A page shows a snapshot that is a second old; on a busy machine it arrives later."""
RECORD_SECONDS = 5.0
"""By then a server has written its records."""
_SAMPLE = re.compile(r"^(podgate_\w+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def check_agreement(facts: Facts, judge: Judge) -> None:
    """Compare each page with the facts, while the store answers."""
    if facts.history.charges:
        _check_statuses(facts, judge)
    _check_records(facts, judge)
    end = facts.history.end
    if end is not None:
        _check_health(facts, judge, end)
        _check_metrics(facts, judge, end)
        _check_queue(judge, end)
        _check_explanations(judge, end)
        _check_events(facts, judge, end)


def _check_statuses(facts: Facts, judge: Judge) -> None:
    """Expect that the use that a status shows is what was charged."""
    used = StoredUse(facts)
    for status in facts.history.statuses:
        store = status.document.get("store")
        if not isinstance(store, Mapping) or not store.get("healthy") or "services" not in status.document:
            continue
        if facts.faults.list_store_spans(status.at - STATUS_SECONDS, status.at):
            continue
        for key, row in list_rows(status.document):
            seconds = read_seconds(row["window"])
            if row.get("used") is None or not seconds or _lacks_older(facts, status.at - seconds):
                continue
            if not facts.is_recorded(status.at - 2 * seconds, status.at):
                continue
            shown = read_amount(row["resource"], row["used"])
            # A page shows a snapshot that may be a second old.
            least = used.compute_least(key, status.at - STATUS_SECONDS, status.at)
            most = used.compute_most(key, status.at - STATUS_SECONDS, status.at)
            judge.expect(
                holds=least <= shown <= most,
                of=f"status of {status.part}",
                field=f"used of {key}, {key.window}",
                value=shown,
                expected=f"{least} to {most}, as charged",
                at=status.at,
            )


def _lacks_older(facts: Facts, begin: float) -> bool:
    """Return whether the store lost what nobody submits again, within a time."""
    for span in facts.faults.store_spans:
        if facts.faults.loses_data(span) and span.ended >= begin:
            first = min((created.asked_at for created in facts.created.values()), default=span.began)
            ended = list_ends(facts, span.began - REBOOKED_SECONDS, span.ended)
            if ended or max(first, begin) < span.began - REBOOKED_SECONDS:
                return True
    return False


def list_rows(document: Mapping[str, Any]) -> Iterator[tuple[LimitKey, Mapping[str, Any]]]:
    """Yield the rows of a status about windows, with their limits."""
    for holder, parts in ((Holder.SERVICE, document.get("services")), (Holder.POOL, document.get("pools"))):
        for part in parts or ():
            fleet = part.get("scope") == "Fleet"
            for row in part.get("windows") or ():
                if row["window"] != STANDING:
                    from_name = str(row["resource"])
                    scope = row.get("namespace") or row.get("team") or ""
                    account = (holder, part["name"], fleet, scope)
                    yield LimitKey(account, read_seconds(row["window"]), canonicalize(from_name)), row


def _check_records(facts: Facts, judge: Judge) -> None:
    """Each answer that a server gave about a new Pod has a record, with the same verdict."""
    end = facts.history.end
    for uid, created in facts.created.items():
        if (
            not created.decision
            or not facts.history.reviews
            or (end is not None and end.at - created.answered_at < RECORD_SECONDS)
        ):
            continue
        active = facts.faults.list_active(created.asked_at, created.answered_at + RECORD_SECONDS)
        verdicts = {review.decision for review in facts.judged.get(uid, ())}
        judge.expect(
            holds=created.decision in verdicts or (not verdicts and bool(active)),
            of=str(created),
            field="decision records",
            value=", ".join(sorted(verdicts)) or "none",
            expected=created.decision,
            at=created.answered_at,
        )


def _is_store_unsettled(facts: Facts, end: End) -> bool:
    """Return whether a server may still be in a fallback: a fault of the store has ended only now."""
    return bool(facts.faults.list_active(end.at - SETTLE_SECONDS, end.at, of=facts.faults.is_of_store))


def _check_health(facts: Facts, judge: Judge, end: End) -> None:
    """At rest each server says that it is well."""
    if not end.rested or _is_store_unsettled(facts, end):
        return
    for part, document in end.statuses.items():
        store = document.get("store") or {}
        judge.expect(
            holds=not store.get("error") and not document.get("notReady"),
            of=f"status of {part}",
            field="store and readiness",
            value=f"{store.get('error')}, not ready: {document.get('notReady')}",
            expected="no error",
            at=end.at,
        )


def parse_metrics(text: str) -> Samples:
    """Return the series of a page of metrics."""
    return {
        (name, frozenset(_LABEL.findall(labels or ""))): float(value) for name, labels, value in _SAMPLE.findall(text)
    }


def _check_metrics(facts: Facts, judge: Judge, end: End) -> None:
    """At rest the metrics of a server agree with its status, and with its records."""
    counts = Counter((review.replica, review.decision) for review in facts.history.reviews)
    for part, text in end.metrics.items():
        document = end.statuses.get(part)
        if document is None or facts.history.plan.parts.get(part) != "server":
            continue
        samples = parse_metrics(text)
        for name, wanted in (("podgate_store_up", 1.0), ("podgate_store_fallback", 0.0)):
            for (found, labels), value in samples.items():
                if found == name and end.rested and not _is_store_unsettled(facts, end):
                    judge.expect(
                        holds=value == wanted,
                        of=f"metrics of {part}",
                        field=f"{name}{dict(labels) or ''}",
                        value=value,
                        expected=wanted,
                        at=end.at,
                    )
        _check_breaker_series(judge, part, samples, document, end)
        replica = str(facts.history.plan.details.get("replica_names", {}).get(part, ""))
        if replica:
            of_part = {verdict: count for (name, verdict), count in counts.items() if name == replica}
            _check_review_counts(judge, part, samples, of_part, end)


def _check_breaker_series(judge: Judge, part: str, samples: Samples, document: Mapping[str, Any], end: End) -> None:
    for service in document.get("services") or ():
        breaker = service.get("breaker")
        if not breaker:
            continue
        key = ("podgate_breaker_state", frozenset({("service", service["name"]), ("state", breaker["state"])}))
        judge.expect(
            holds=samples.get(key, 1.0) == 1,
            of=f"metrics of {part}",
            field=f"podgate_breaker_state of {service['name']} in {breaker['state']}",
            value=samples.get(key),
            expected=1,
            at=end.at,
        )


def _check_review_counts(judge: Judge, part: str, samples: Samples, recorded: Mapping[str, int], end: End) -> None:
    """Expect that a server that lived to the end has counted the reviews that it has recorded, and no others."""
    counted: Counter[str] = Counter()
    for (name, labels), value in samples.items():
        if name == "podgate_reviews_total":
            counted[dict(labels)["decision"]] += int(value)
    for verdict in sorted({*counted, *recorded}):
        judge.expect(
            holds=counted[verdict] == recorded.get(verdict, 0),
            of=f"metrics of {part}",
            field=f"podgate_reviews_total, {verdict}",
            value=counted[verdict],
            expected=f"{recorded.get(verdict, 0)}, as recorded",
            at=end.at,
        )


def _check_queue(judge: Judge, end: End) -> None:
    """Expect in the queue exactly the Pods that have the gate."""
    if end.queue is None or not end.rested:
        return
    rows = {row["uid"] for row in end.queue.get("pods") or ()}
    gated = {pod["metadata"]["uid"] for pod in end.pods if has_gate(pod)}
    judge.expect(
        holds=rows == gated,
        of="podgate queue",
        field="waiting Pods",
        value=sorted(rows),
        expected=sorted(gated),
        at=end.at,
    )


RUNNING = frozenset({"Running", "Succeeded", "Starting", "Failed", "Admitted", "Exempt", "Unmatched", "Terminating"})
"""What explain may say of a Pod that is not waiting."""


def _check_explanations(judge: Judge, end: End) -> None:
    """Expect that a Pod that runs is explained as such, and none that exists as denied."""
    phases = {
        f"Pod/{pod['metadata'].get('namespace')}/{pod['metadata']['name']}": pod.get("status", {}).get("phase", "")
        for pod in end.pods
    }
    for of, report in end.explanations.items():
        fate = str(report.get("token") or "")
        phase = phases.get(of)
        if not fate or phase is None:
            continue
        judge.expect(
            holds=fate in RUNNING if phase in {"Running", "Succeeded"} else fate != "Denied",
            of=of,
            field="podgate explain",
            value=fate,
            expected=phase,
            at=end.at,
        )


def _check_events(facts: Facts, judge: Judge, end: End) -> None:
    """Expect that an Event of a denial is about a denial that a server has made."""
    denied = {
        (review.namespace, code)
        for review in facts.history.reviews
        if review.decision == "Deny"
        for code in review.record.get("codes") or ()
    }
    for event in end.events:
        reason, namespace = str(event.get("reason", "")), event.get("metadata", {}).get("namespace", "")
        if reason in set(Code) and event.get("type") == "Warning":
            judge.expect(
                holds=(namespace, reason) in denied,
                of=f"Event {namespace}/{event.get('metadata', {}).get('name', '')}",
                field="reason",
                value=reason,
                expected="a denial in the records",
                at=end.at,
            )
