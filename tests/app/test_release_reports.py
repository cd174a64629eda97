"""Log lines about waiting Pods that cannot be released: at first, for each new reason, at a pace, and at the end."""

from typing import Any

from webhook.app.telemetry.loop_reports import FailingLog
from webhook.core.reporting.queue_document import FailingPods, QueueDepth


class Lines:
    """A log and a clock."""

    def __init__(self) -> None:
        self.now_seconds = 0.0
        self.lines: list[tuple[str, Any]] = []
        self.log = FailingLog(self._said, lambda: self.now_seconds)

    def _said(self, level: str, _: str, /, **fields: Any) -> None:
        self.lines.append((level, fields.get("cause", fields["service"])))

    def show(self, seconds: float, *reasons: str) -> list[tuple[str, Any]]:
        """Show these reasons each second for so long; return the lines."""
        self.lines.clear()
        failing = tuple(FailingPods(reason, 1, "pod shop/web: cannot release: HTTP 403") for reason in reasons)
        for _ in range(round(seconds)):
            self.now_seconds += 1
            self.log.update([QueueDepth("web", "gold", 1, 1, None, failing), QueueDepth("idle", "gold", 0, 0)])
        return self.lines


def test_a_lasting_failure_is_repeated_every_ten_minutes_and_its_end_is_told() -> None:
    lines = Lines()
    assert lines.show(60) == []
    assert lines.show(599, "forbidden") == [("warning", "forbidden")]
    assert lines.show(2, "forbidden") == [("warning", "forbidden")]
    assert lines.show(5, "admission") == [("warning", "admission")]
    assert lines.show(5, "forbidden") == [], "it was told"
    assert lines.show(5) == [("info", "web")]
    assert lines.show(5, "forbidden") == [("warning", "forbidden")]


def test_a_process_that_leads_no_more_does_not_say_that_the_failure_is_over() -> None:
    lines = Lines()
    lines.show(5, "forbidden")
    lines.lines.clear()
    lines.log.update(())
    assert lines.lines == []
