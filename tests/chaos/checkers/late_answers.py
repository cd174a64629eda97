"""When servers logged that the store answered too late: on a busy machine it does so without a fault."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.chaos.checkers.log_lines import list_log_lines, parse_moment
from tests.chaos.history import History

STORE_FAILED = ("store operation failed", "the store does not respond")
"""How lines begin by which a server logs a failure of the store: of one call, and until it answers again."""
_ANSWERS_AGAIN = "the store responds again"
_STARTED = "listening"
_TIMEOUT = "timeout"
_FOREVER = float("inf")


class LateAnswers(NamedTuple):
    """A server lacked answers until `ended`, infinity if the log does not say when."""

    part: str
    noticed: float
    ended: float


def list_late_answers(history: History) -> Iterator[LateAnswers]:
    """Yield them by server. In a Cluster each node has lines of its own, which have the same reason at both ends."""
    for part, kind in history.plan.parts.items():
        if kind == "server":
            yield from _list_of_log(part, history.logs.get(part, ""))


def _list_of_log(part: str, log: str) -> Iterator[LateAnswers]:
    lasting: list[tuple[str, float]] = []
    for line in list_log_lines(log):
        message, reason = str(line.get("msg", "")), str(line.get("reason", ""))
        at = parse_moment(str(line.get("time", "1970-01-01T00:00:00Z")))
        if message == _STARTED:  # what its former process lacked is over
            yield from (LateAnswers(part, noticed, at) for _, noticed in lasting)
            lasting.clear()
        elif message == _ANSWERS_AGAIN:
            found = next((trouble for trouble in lasting if trouble[0] == reason), None)
            if found is not None:
                lasting.remove(found)
                yield LateAnswers(part, found[1], at)
        elif not reason.startswith(_TIMEOUT):
            continue
        elif message.startswith(STORE_FAILED[0]):
            yield LateAnswers(part, at, at)
        elif message.startswith(STORE_FAILED[1]):
            lasting.append((reason, at))
    yield from (LateAnswers(part, noticed, _FOREVER) for _, noticed in lasting)
