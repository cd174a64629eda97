"""A Pod's story in the console: the report of `podgate explain`, its steps, and the next moment that may end a wait."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from webhook.core.console_views.cell import Cells
from webhook.core.console_views.countdown import build_countdown, count_seconds
from webhook.core.diagnosis import Fate, Report

FATE_WORDS = {
    Fate.DENIED: "It was refused: it does not exist, and its controller tries again.",
    Fate.RELEASE_FAILS: "It waits in the queue, and the API server does not take its gate away.",
    Fate.BREAKER_OPEN: "The breaker of its service is open: new Pods are refused, or wait.",
    Fate.WAITING_FOR_LIVE_PODS: "It waits until other Pods have ended: the limit is on live Pods.",
    Fate.WAITING_FOR_RETRY: "There is room by now, and its controller has not tried again yet.",
    Fate.EXPIRED: "It waited in the queue for too long, and was deleted.",
    Fate.DROPPED: "It waited in the queue, and somebody deleted it.",
    Fate.WAITING_FOR_QUOTA: "It waits in the queue for room in its quota.",
    Fate.GATED_BY_OTHERS: "It waits for a gate that is not Podgate's.",
    Fate.UNSCHEDULABLE: "It was admitted, and no node fits it.",
    Fate.FAILED: "It was admitted and scheduled, and its containers fail.",
    Fate.STARTING: "It has a node, and its containers start.",
    Fate.TERMINATING: "It is being deleted.",
    Fate.IDLE: "The workload is to run no Pods now.",
    Fate.RUNNING: "It runs.",
    Fate.SUCCEEDED: "It has ended well.",
    Fate.EXEMPT: "It was admitted without being judged: it is exempt.",
    Fate.UNMATCHED: "It was admitted without being judged: no service matches it.",
    Fate.ADMITTED: "It was admitted; what became of it is not known here.",
    Fate.UNKNOWN: "What it does is not known.",
}
EXIT_WORDS = {0: "explained", 3: "denied", 4: "nothing is known"}
"""Exit codes of the command."""
STEPS = ("Admission", "Queue", "Scheduling", "Start")
_ADMISSION, _QUEUE, _SCHEDULING, _START = range(len(STEPS))
_STOPS = {
    Fate.DENIED: _ADMISSION,
    Fate.WAITING_FOR_RETRY: _ADMISSION,
    Fate.BREAKER_OPEN: _QUEUE,
    Fate.WAITING_FOR_LIVE_PODS: _QUEUE,
    Fate.RELEASE_FAILS: _QUEUE,
    Fate.EXPIRED: _QUEUE,
    Fate.DROPPED: _QUEUE,
    Fate.WAITING_FOR_QUOTA: _QUEUE,
    Fate.GATED_BY_OTHERS: _QUEUE,
    Fate.UNSCHEDULABLE: _SCHEDULING,
    Fate.FAILED: _START,
    Fate.STARTING: _START,
}
"""The step at which a Pod of this token stands."""
_PASSED = frozenset({Fate.RUNNING, Fate.SUCCEEDED, Fate.TERMINATING})
_ADMITTED = frozenset({Fate.EXEMPT, Fate.UNMATCHED, Fate.ADMITTED})


class StoryStep(Struct, frozen=True):
    """One step of a Pod's path: `done`, `here`, `ahead` or `unknown`."""

    name: str
    state: str


class StoryPart(Struct, frozen=True, rename="camel"):
    """One line of the report."""

    label: str
    text: str
    is_detail: bool = False


class PodStory(Struct, frozen=True, rename="camel"):
    """What was asked, and what is known; without a report, why not."""

    time: str
    what: str = ""
    namespace: str = "default"
    target: str = ""
    """What was understood; "" if nothing was asked."""
    command: str = ""
    report: Report | None = None
    judgement: str = ""
    """`bad`, `fine` or `waits`."""
    steps: tuple[StoryStep, ...] = ()
    parts: tuple[StoryPart, ...] = ()
    moment: str = ""
    """When its wait may end; "" if that is not known, or nothing waits."""
    moment_words: str = ""
    unread: tuple[str, ...] = ()
    """What could not be read, if nothing is known."""
    exit_code: int = 0
    problem: str = ""
    remedy: str = ""
    with_services: bool = True
    """Whether the viewer may see the page of its service."""

    @property
    def fate_words(self) -> str:
        return "" if self.report is None else FATE_WORDS[self.report.token]

    @property
    def exit_words(self) -> str:
        return EXIT_WORDS[self.exit_code]

    def list_order(self) -> Sequence[str]:
        return [part.text for part in self.parts]

    def list_cells(self) -> Cells:
        return {"moment": build_countdown(self.moment, self.time)}


def list_steps(report: Report) -> tuple[StoryStep, ...]:
    """Return how far a Pod has come."""
    token = report.token
    stop = _ADMISSION if report.is_denied and report.queue is None else _STOPS.get(token)
    if token in _PASSED:
        states = ["done"] * len(STEPS)
    elif stop is not None:
        states = ["done" if at < stop else "here" if at == stop else "ahead" for at in range(len(STEPS))]
    else:
        states = ["done" if token in _ADMITTED else "unknown", *["unknown"] * _START]
    return tuple(StoryStep(name, state) for name, state in zip(STEPS, states, strict=True))


def list_story_parts(parts: Iterable[tuple[str, str]]) -> tuple[StoryPart, ...]:
    """Return the lines of a report; a label that begins with spaces is of a detail."""
    return tuple(StoryPart(label.strip(), text, label.startswith(" ")) for label, text in parts)


def find_moment(report: Report, time: str) -> tuple[str, str]:
    """Return the next moment at which the wait may end, and what happens then; "" without one."""
    row, breaker = report.queue, report.breaker
    if row is not None:
        turn = row.expected_at or row.not_before
        found = [(row.expires_at, "It expires before its turn")] if row.early_end else [(turn, "It may go")]
    elif report.token is Fate.BREAKER_OPEN and breaker is not None:
        found = [(breaker.open_until, "The breaker admits probes")]
    elif report.is_denied:
        frees = [limit.free_at for limit in report.quota if limit.over and limit.free_at]
        found = [(max(frees), "There is room")] if frees else []
    else:
        found = []
    return next(((at, words) for at, words in found if at and count_seconds(at, time)), ("", ""))
