"""A Pod's story: words for each token, its steps, and the next moment."""

import pytest
from msgspec.structs import replace

from tests.harness.console_reports import DENIED, FINE, QUOTA, ROW, RUNNING, SUBJECT, WAITING
from webhook.core.console_views.pod_story import FATE_WORDS, find_moment, list_steps
from webhook.core.diagnosis import Fate, Report
from webhook.core.reporting.decision_record import RecordedBreaker

NOW = "2026-12-01T04:00:00Z"


def test_each_token_has_words() -> None:
    assert set(FATE_WORDS) == set(Fate)


@pytest.mark.parametrize(
    ("report", "states"),
    [
        (DENIED, "here ahead ahead ahead"),
        (replace(DENIED, token=Fate.BREAKER_OPEN), "here ahead ahead ahead"),
        (replace(WAITING, token=Fate.BREAKER_OPEN), "done here ahead ahead"),
        (WAITING, "done here ahead ahead"),
        (replace(RUNNING, token=Fate.UNSCHEDULABLE), "done done here ahead"),
        (replace(RUNNING, token=Fate.FAILED), "done done done here"),
        (RUNNING, "done done done done"),
        (Report(Fate.UNMATCHED, "", SUBJECT), "done unknown unknown unknown"),
        (Report(Fate.UNKNOWN, "", SUBJECT), "unknown unknown unknown unknown"),
    ],
)
def test_steps(report: Report, states: str) -> None:
    assert " ".join(step.state for step in list_steps(report)) == states


OPENED = RecordedBreaker("OPEN", 3, "2026-12-01T04:04:32.000Z")


@pytest.mark.parametrize(
    ("report", "moment"),
    [
        (DENIED, (QUOTA.free_at, "There is room")),
        (replace(DENIED, quota=(FINE,)), ("", "")),
        (replace(DENIED, quota=(replace(QUOTA, free_at="2026-12-01T03:59:00Z"),)), ("", "")),
        (replace(DENIED, token=Fate.BREAKER_OPEN, breaker=OPENED), (OPENED.open_until, "The breaker admits probes")),
        (WAITING, (ROW.expected_at, "It may go")),
        (replace(WAITING, queue=replace(ROW, expected_at=None)), ("", "")),
        (
            replace(WAITING, queue=replace(ROW, expires_at="2099-01-01T00:00:00Z")),
            ("2099-01-01T00:00:00Z", "It expires before its turn"),
        ),
        (RUNNING, ("", "")),
    ],
)
def test_the_next_moment(report: Report, moment: tuple[str, str]) -> None:
    assert find_moment(report, NOW) == moment
