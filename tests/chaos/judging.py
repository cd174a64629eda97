"""The judgement of a history: facts that each run must meet, and all checkers."""

import importlib
import importlib.util
import re
from collections.abc import Iterator

from tests.chaos.history import History

_CHECKERS = "tests.chaos.checkers"
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
_PODGATE = ("server", "controller", "extender")


def judge(history: History) -> list[str]:
    """Return everything that is wrong, a line each."""
    flaws = [*_list_unrested(history), *_list_exits(history), *_list_tracebacks(history)]
    if importlib.util.find_spec(_CHECKERS):
        flaws += map(str, importlib.import_module(_CHECKERS).check(history))
    return flaws


def _list_unrested(history: History) -> Iterator[str]:
    if history.end is None:
        yield "the run has no end"
    else:
        yield from (f"not at rest: {line}" for line in history.end.missing)


def _list_exits(history: History) -> Iterator[str]:
    """Podgate's parts end only when they are told to."""
    for fault in history.faults:
        if fault.kind == "exited" and history.plan.parts[fault.parts[0]] in _PODGATE:
            yield f"{fault.parts[0]} ended by itself at {fault.at:.1f}: {fault.details}"


def _list_tracebacks(history: History) -> Iterator[str]:
    for part, text in history.logs.items():
        if history.plan.parts.get(part) in _PODGATE and (found := _TRACEBACK.search(text)):
            yield f"{part}: {text[found.start() : found.start() + 2000]}"
