"""No trailing window holds more than its limit, and the bound of the fault that was active."""

from tests.chaos.checkers.bounds import compute_excess
from tests.chaos.checkers.counted import Counted, CountedPod, LimitKey
from tests.chaos.checkers.facts import Facts
from tests.chaos.checkers.judging import Judge
from tests.chaos.checkers.replica_counts import check_replica_counts


def check_windows(facts: Facts, judge: Judge) -> None:
    """Slide each window exactly over the Pods that were admitted and exist; judge by how many a limit is divided."""
    check_replica_counts(facts, judge)
    counted = Counted(facts)
    for key, pods in counted.by_limit.items():
        reported_until = 0.0
        for index, pod in enumerate(pods):
            end = pod.earliest + key.seconds
            if pod.earliest >= reported_until and not _check_window(facts, judge, counted, key, pods[index:], end):
                reported_until = end


def _check_window(
    facts: Facts, judge: Judge, counted: Counted, key: LimitKey, pods: list[CountedPod], end: float
) -> bool:
    begin, held, last = pods[0].earliest, 0, pods[0].earliest
    for pod in pods:
        if pod.earliest >= end:
            break
        if pod.latest < end:
            held, last = held + pod.amount, max(last, pod.latest)
    hard = counted.find_hard(key, begin, last)
    expected: object = f"at most {hard}"
    holds = held <= hard
    if not holds:
        excess = compute_excess(facts, counted, key, begin, end)
        holds = excess.amount is None or held <= hard + excess.amount
        expected = f"at most {hard}" + (f" + {excess.amount} ({excess.why})" if excess.amount else "")
    return judge.expect(holds=holds, of=str(key), field=key.window, value=held, expected=expected, at=last, since=begin)
