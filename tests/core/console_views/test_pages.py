"""Views of single pages: countdowns, outcomes, the diagram, and texts of limits and nodes."""

from typing import Any

import msgspec
import pytest

from tests.harness.console import NOW, breaker
from tests.harness.console_rows import NODES, denial, node, queue_document, waiting_pod
from webhook.core.console_views.breaker_diagram import DIAGRAM, list_diagram_cells
from webhook.core.console_views.cell import CELL_ATTRIBUTES
from webhook.core.console_views.countdown import NO_COUNTDOWN, build_countdown
from webhook.core.console_views.nodes import build_nodes, judge_node
from webhook.core.console_views.outcome_counts import OutcomeCount, list_outcomes
from webhook.core.console_views.overview import BREAKER_WORDS
from webhook.core.console_views.queue import CAUSE_WORDS, QueueQuery, build_queue, hide_pod
from webhook.core.console_views.refusals import CHANGES_MAX, RecordPage, count_workloads, list_changes
from webhook.core.console_views.service import BREAKER_ADVICE
from webhook.core.console_views.status_document import BreakerStatus
from webhook.core.reporting.node_document import NodeDocument, ShownNode
from webhook.core.reporting.queue_document import QueueDocument, WaitCause


def read_breaker(state: str, seconds: int = 0, **fields: Any) -> BreakerStatus:
    return msgspec.convert(breaker(state, seconds, **fields), BreakerStatus)


def read_records(*records: dict[str, Any]) -> RecordPage:
    return msgspec.json.decode(msgspec.json.encode({"decisions": records}), type=RecordPage)


@pytest.mark.parametrize("moment", [None, "", "soon", "2026-12-01T03:59:59Z", NOW])
def test_no_moment_or_one_that_is_over_has_no_countdown(moment: str | None) -> None:
    assert build_countdown(moment, NOW) == NO_COUNTDOWN


def test_a_countdown_is_rounded_up() -> None:
    assert build_countdown("2026-12-01T04:00:09.001Z", NOW).text == "10s"


def test_each_cause_and_state_has_words() -> None:
    assert set(CAUSE_WORDS) == set(WaitCause)
    assert set(BREAKER_ADVICE) == set(BREAKER_WORDS) == {state.name for state in DIAGRAM.states}


@pytest.mark.parametrize("state", BREAKER_WORDS)
def test_the_diagram_marks_the_present_state_only(state: str) -> None:
    cells = list_diagram_cells(read_breaker(state, 272), NOW)
    marked = [key for key, cell in cells.items() if cell.attributes.get("data-state")]
    assert marked == [f"diagram/{state}"]
    assert {name for cell in cells.values() for name in cell.attributes} <= CELL_ATTRIBUTES
    texts = {key for key, cell in cells.items() if cell.text}
    assert texts == {f"diagram/{state}/line"}


def test_outcomes_are_read_by_service_and_bad_lines_left_out() -> None:
    text = (
        'podgate_outcomes_total{result="o\\"k",service="a} b",source="Pushed"} 2e3\n'
        'podgate_outcomes_total{result="error",service="a} b",source="Pushed"} 3e3\n'
        'podgate_outcomes_total{result="ok",service="idle",source="Pushed"} 0.0\n'
        'podgate_outcomes_total{result="ok"} inf\npodgate_outcomes_total{x\npodgate_other{service="a"} 1\n'
    )
    assert list_outcomes(text) == {
        "a} b": (OutcomeCount("Pushed", "error", 3000), OutcomeCount("Pushed", 'o\\"k', 2000))
    }


def test_a_breaker_without_records_has_its_present_state() -> None:
    assert list_changes((), read_breaker("CLOSED")) == ()
    [now] = list_changes((), read_breaker("OPEN", since="2026-12-01T03:59:00.000Z"))
    assert (now.state, now.exact, now.missed) == ("OPEN", True, 0)


def test_the_history_is_bounded_and_forgets_another_lives_generations() -> None:
    seen = [denial(f"r{n:03d}", breaker={"state": "OPEN", "generation": n}) for n in range(100, 0, -1)]
    changes = list_changes(read_records(*seen).decisions, read_breaker("CLOSED", generation=50))
    assert [change.generation for change in changes] == list(range(50, 50 - CHANGES_MAX, -1))


def test_the_newest_denial_of_a_workload_gives_its_text() -> None:
    records = read_records(denial("r2", message="new", codes=["B"]), denial("r1", message="old", codes=["A", "B"]))
    [found] = count_workloads(records.decisions)
    assert (found.count, found.message, found.codes) == (2, "new", ("B", "A"))


def test_a_hidden_pod_has_no_name_and_its_own_cells() -> None:
    document = msgspec.convert(queue_document(waiting_pod("a"), waiting_pod("b", place=2)), QueueDocument)
    hidden = tuple(map(hide_pod, document.pods))
    assert {row.name + row.namespace + row.owner + row.uid for row in hidden} == {""}
    view = build_queue(QueueDocument(leads=True, time=NOW, pods=hidden, matching=2), QueueQuery())
    assert len(view.list_cells()) == 2 + 2 * 7


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"exceeds": {"a": "hot_cpu"}, "isSilent": True}, "HOT"),
        ({"isSilent": True, "load": None}, "SILENT"),
        ({"load": None, "exceeds": {"a": "unknown"}}, "UNKNOWN"),
        ({}, "COOL"),
    ],
)
def test_the_worst_state_of_a_node_counts(fields: dict[str, Any], state: str) -> None:
    assert judge_node(msgspec.convert(node("n", **fields), ShownNode)) == state


def test_shares_beyond_the_whole_fill_the_gauge() -> None:
    shown = msgspec.convert({"nodes": [*NODES, node("over", cpuShare=1.4)], "count": 6}, NodeDocument)
    cells = build_nodes(shown, "x", NOW, "", 1).list_cells()
    assert cells["over/cpu-gauge"].attributes == {"width": "100", "data-state": "full"}
    assert cells["over/cpu-share"].text == "140 %"
    assert cells["blank/cpu-share"].text == "?"
