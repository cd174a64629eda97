"""Views of the console: how full a limit is, denials by minute, sparklines and countdowns."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from tests.app.status_command import DOCUMENT
from webhook.core.console_views.cell import LiveCell, find_changed_cells, format_countdown
from webhook.core.console_views.recent_denials import MINUTES, DeniedRecord, RecentDenials
from webhook.core.console_views.sparkline import draw_points
from webhook.core.console_views.status_document import LimitStatus, ServerPage

START = datetime(2026, 12, 1, 4, tzinfo=UTC)


@pytest.mark.parametrize(
    ("used", "hard", "surge", "percent"),
    [
        (0, 50, None, 0),
        (44, 50, None, 88),
        ("1500m", "2", None, 75),
        ("6Gi", "12Gi", None, 50),
        (12, 10, 2, 100),
        (0, 0, None, 100),
        (None, 50, None, None),
    ],
)
def test_percent_of_a_limit(used: int | str | None, hard: int | str, surge: int | None, percent: int | None) -> None:
    assert LimitStatus("1m", "pods", hard, used=used, surge=surge).percent == percent


def to_us(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000


def test_denials_are_counted_by_minute_and_forgotten() -> None:
    denials = RecentDenials()
    records = [DeniedRecord(str(number), START + timedelta(minutes=number), "web") for number in range(3)]
    for _ in range(2):
        denials.add([*records, DeniedRecord("dry", START, "web", dry_run=True)], to_us(START + timedelta(minutes=2)))
    found = denials.list_counts(to_us(START + timedelta(minutes=2)))
    assert found == {"web": (0,) * (MINUTES - 3) + (1, 1, 1)}
    later = to_us(START + timedelta(minutes=MINUTES))
    assert sum(denials.list_counts(later)["web"]) == 2
    assert denials.list_counts(to_us(START + timedelta(hours=1))) == {}


def test_a_sparkline_reaches_the_top_at_the_highest_count() -> None:
    assert draw_points((0, 5, 10)) == "2,18 45,10 88,2"
    assert draw_points((0, 0)) == "2,18 88,18"
    assert draw_points((3,)) == "2,2"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (45, "45s"), (60, "1m00s"), (151, "2m31s"), (3900, "1h05m"), (90000, "25h00m")]
)
def test_countdown(seconds: int, text: str) -> None:
    assert format_countdown(seconds) == text


def test_changed_cells_are_new_or_different() -> None:
    before = {"a": LiveCell("1"), "b": LiveCell("2"), "gone": LiveCell("3")}
    after = {"a": LiveCell("1"), "b": LiveCell("2", {"title": "x"}), "new": LiveCell("4")}
    assert find_changed_cells(before, after) == {"b": after["b"], "new": after["new"]}


def test_the_status_document_of_a_server_can_be_read() -> None:
    found = msgspec.json.decode(DOCUMENT, type=ServerPage)
    [known, unknown] = found.services
    assert (known.name, known.windows[0].used, known.windows[0].percent) == ("payment-api", 37, 74)
    assert known.breaker is not None
    assert known.breaker.state == "CLOSED"
    assert not unknown.known
