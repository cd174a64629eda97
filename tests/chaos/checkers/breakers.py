"""Transitions of breakers are legal, have a cause, come in time, and are the same everywhere."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from tests.chaos.checkers.denials import measure
from tests.chaos.checkers.facts import US, Facts
from tests.chaos.checkers.faults import NOTICE_SECONDS
from tests.chaos.checkers.judging import Judge
from tests.chaos.checkers.log_lines import format_moment, parse_moment
from tests.chaos.checkers.outcomes import check_causes
from tests.chaos.history import Review, Transition
from webhook.core.breaker.transitions import TRANSITIONS
from webhook.core.findings import Code

MOVED = "breaker transition"
"""The message of a line in the log about a change of state."""
LEGAL = frozenset({(str(old), str(new)) for (old, _), new in TRANSITIONS.items()})
BY_REASON = {
    "openFor passed": ("OPEN", "HALF_OPEN"),
    "probe failed": ("HALF_OPEN", "OPEN"),
    "errorRate": ("CLOSED", "OPEN"),
    "latency": ("CLOSED", "OPEN"),
    "quotaExceeded": ("CLOSED", "OPEN"),
    "unschedulable": ("CLOSED", "OPEN"),
}
"""What a transition is whose reason begins like this."""
LATE_SECONDS = 3.0
"""Replicas tick each second, 300 ms late, and read each other's transitions within a second."""
CLOCK_SECONDS = 0.3


def check_breakers(facts: Facts, judge: Judge) -> None:
    """Judge what parts logged, what servers decided by, and what they show."""
    moves: dict[tuple[str, str], list[Transition]] = defaultdict(list)
    for move in facts.history.transitions:
        if move.message == MOVED:
            moves[move.service, move.variant].append(move)
    for owner, found in moves.items():
        _check_chain(facts, judge, "/".join(filter(None, owner)), sorted(found, key=lambda move: move.generation))
    _check_reviews(facts, judge)
    _check_statuses(facts, judge)
    check_causes(facts, judge, {service: found for (service, variant), found in moves.items() if not variant})


def _check_chain(facts: Facts, judge: Judge, of: str, moves: Sequence[Transition]) -> None:
    """Each generation has one transition, which begins where the one before has ended."""
    before: Transition | None = None
    for move in moves:
        by_reason = [pair for reason, pair in BY_REASON.items() if move.reason.startswith(reason)]
        judge.expect(
            holds=(move.old, move.new) in (by_reason or LEGAL),
            of=of,
            field="transition",
            value=f"{move.old} to {move.new} ({move.reason})",
            expected="one of the table",
            at=move.at,
        )
        times = [move.at, move.at if before is None else before.at]
        if before is not None and not facts.faults.list_store_spans(min(times) - LATE_SECONDS, max(times)):
            follows = move.generation == before.generation + 1 and move.old == before.new
            judge.expect(
                holds=follows,
                of=of,
                field=f"transition to generation {move.generation}",
                value=f"{move.old} to {move.new} in {move.part}",
                expected=f"generation {before.generation + 1} from {before.new}, told by one part",
                at=move.at,
            )
        before = move


def _check_reviews(facts: Facts, judge: Judge) -> None:
    """Expect that a breaker denies only while it is open, and admits only probes then."""
    probing: dict[tuple[str, int, str], list[Review]] = defaultdict(list)
    for reviews in facts.judged.values():
        review = reviews[0]  # a repeated one is admitted without a new probe
        codes = set(review.record.get("codes") or ())
        if review.decision == "Deny" and codes & {Code.BREAKER_OPEN, Code.BREAKER_PROBING}:
            _check_denial(facts, judge, review, codes)
        elif review.decision == "Admit" and review.breaker_state in {"OPEN", "FORCED_OPEN", "HALF_OPEN"}:
            probing[review.service, review.breaker_generation, review.breaker_state].append(review)
    for (service, generation, state), admitted in probing.items():
        _check_probes(facts, judge, (service, generation, state), sorted(admitted, key=lambda review: review.at))


def _check_denial(facts: Facts, judge: Judge, review: Review, codes: set[str]) -> None:
    wanted = {"OPEN", "FORCED_OPEN"} if Code.BREAKER_OPEN in codes else {"HALF_OPEN"}
    of = f"Pod {review.namespace}/{review.name} ({review.uid}) of {review.service}"
    judge.expect(
        holds=review.breaker_state in wanted,
        of=of,
        field="denied by the breaker in state",
        value=review.breaker_state,
        expected=" or ".join(sorted(wanted)),
        at=review.at,
    )
    until = (review.record.get("breaker") or {}).get("openUntil")
    if until and not facts.faults.list_store_spans(review.at - 1, review.at):
        judge.expect(
            holds=review.at - measure(review) <= parse_moment(until) + CLOCK_SECONDS + NOTICE_SECONDS,
            of=of,
            field="denied by a breaker that was open until",
            value=until,
            expected=f"later than {format_moment(review.at)}",
            at=review.at,
        )


def _check_probes(facts: Facts, judge: Judge, key: tuple[str, int, str], admitted: Sequence[Review]) -> None:
    service, generation, state = key
    first, last = admitted[0], admitted[-1]
    plans = [policy.plans[service] for policy in facts.list_policies(first.at, last.at) if service in policy.plans]
    breakers = [plan.breaker for plan in plans if plan.breaker is not None]
    if not breakers or any(plan.breaker_mode != "Enforce" for plan in plans) or any(each.degrades for each in breakers):
        return
    timeout = min(breaker.probe_timeout_us for breaker in breakers) / US
    most = max(breaker.probes for breaker in breakers)
    if state == "FORCED_OPEN":
        most = 0
    # Places that expired are given again.
    most *= 1 + int((last.at - first.at) // timeout)
    if facts.faults.list_store_spans(first.at, last.at):
        most = max(most * 2, most + facts.server_count - 1)
    judge.expect(
        holds=len(admitted) <= most,
        of=service,
        field=f"Pods admitted in {state}, generation {generation}",
        value=len(admitted),
        expected=f"at most {most} probes",
        at=last.at,
        since=first.at,
    )


def _check_statuses(facts: Facts, judge: Judge) -> None:
    """No server shows an open breaker long after its time, and in the end all show the same."""
    for status in facts.history.statuses:
        if facts.faults.list_store_spans(status.at - LATE_SECONDS, status.at):
            continue
        for service, breaker in list_breakers(status.document).items():
            until = breaker.get("openUntil")
            if breaker.get("state") == "OPEN" and until:
                judge.expect(
                    holds=status.at <= parse_moment(str(until)) + LATE_SECONDS,
                    of=service,
                    field=f"OPEN in {status.part} until",
                    value=until,
                    expected=f"HALF_OPEN by {format_moment(parse_moment(str(until)) + LATE_SECONDS)}",
                    at=status.at,
                )
    end = facts.history.end
    shown: dict[str, dict[str, tuple[str, object]]] = defaultdict(dict)
    for part, document in end.statuses.items() if end is not None else ():
        for service, breaker in list_breakers(document).items():
            shown[service][part] = str(breaker.get("state")), breaker.get("generation")
    for service, by_part in shown.items():
        judge.expect(
            holds=len(set(by_part.values())) == 1,
            of=service,
            field="breaker in the end",
            value=", ".join(f"{part} {state} {generation}" for part, (state, generation) in by_part.items()),
            expected="the same in all servers",
            at=end.at if end is not None else 0,
        )


def list_breakers(document: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    """Return the breakers of a status document by service."""
    services = document.get("services")
    rows = services if isinstance(services, Sequence) else ()
    return {row["name"]: row["breaker"] for row in rows if row.get("breaker")}
