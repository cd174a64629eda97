"""Logs of repeated failures: one line per reason, and one on recovery."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, cast

import pytest

from tests.app.readiness_log import LogLines
from webhook.adapters.logs import Logs
from webhook.adapters.recorder import Recorder
from webhook.app.telemetry import Telemetry
from webhook.core.admission.decision import Decision, Half, ReviewedCall, Verdict
from webhook.core.breaker.outcome_types import Outcomes
from webhook.ports import PartialObserver, Review
from webhook.server.http_messages import HttpRequest, HttpResponse
from webhook.settings import MEMORY, Settings


@pytest.fixture
def telemetry() -> Telemetry:
    values: dict[str, Any] = {"log_sample": 1, "otlp_endpoint": None, "record": None, "store": MEMORY}
    return Telemetry(Settings(**{item.name: values.get(item.name) for item in fields(Settings)}), "0")


@pytest.fixture
def lines(telemetry: Telemetry) -> LogLines:
    written = LogLines()
    telemetry.logs = cast("Logs", written)
    return written


async def test_page_shows_a_review_that_its_client_knows(telemetry: Telemetry) -> None:
    async def scrape(_: HttpRequest) -> HttpResponse:
        return HttpResponse(200, telemetry.metrics.render())

    decision = Decision(Half.MUTATE, "r1", Verdict.UNMATCHED, ReviewedCall("CREATE"))
    telemetry.observer.on_reviewed(Review(decision, None, 1, 1))
    before = await scrape(cast("HttpRequest", None))
    after = await telemetry.observer.wrap_after_reviews(scrape)(cast("HttpRequest", None))
    counted = b'podgate_reviews_total{decision="Unmatched"'
    assert [counted in page.body for page in (before, after)] == [False, True]


async def test_outcomes_are_recorded_after_the_reviews_before_them(telemetry: Telemetry) -> None:
    recorded: list[str] = []

    class Recorded(PartialObserver):
        def on_reviewed(self, review: Review) -> None:
            recorded.append(review.decision.review_uid)

        def on_outcomes_recorded(self, service: str, outcomes: Sequence[Outcomes]) -> None:  # noqa: ARG002  the recorder's
            recorded.append(service)

    recorder = Recorded()
    telemetry._recorder = cast("Recorder", recorder)
    telemetry.observer.join(recorder)
    telemetry.observer.on_reviewed(Review(Decision(Half.VALIDATE, "r1", Verdict.ADMIT), None, 1, 1))
    telemetry.build_outcome_reports().on_outcomes_recorded("web", ())
    assert recorded == ["r1", "web"]


def test_failed_key_fetch_is_logged_once_per_reason(telemetry: Telemetry, lines: LogLines) -> None:
    reports = telemetry.build_fetch_reports("url")
    reports.on_fetched()
    for reason in ("HTTP 500", "HTTP 500", "HTTP 503"):
        reports.on_failed(reason)
    reports.on_ended("HTTP 503")
    reports.on_failed("HTTP 503")
    for _ in range(2):
        reports.on_fetched()
    reports.on_failed("HTTP 503")
    failed = "warning", "key fetch failed, using cached keys", None
    assert lines.written == [
        failed,
        failed,
        ("error", "keys expired, tokens signed with them are rejected", None),
        ("info", "key fetch recovered", None),
        failed,
    ]


def test_unusable_keys_are_logged_once_until_they_change(telemetry: Telemetry, lines: LogLines) -> None:
    unusable = telemetry.build_unusable_keys("url")
    for faults in ("use is 'enc'", "use is 'enc'", "use is 'sign'"):
        unusable.enter(faults)
    unusable.leave()
    ignored = "info", "unusable keys ignored", None
    assert lines.written == [ignored, ignored, ("info", "all keys are usable", None)]


def test_watch_that_has_ended_is_in_neither_metrics_nor_status(telemetry: Telemetry) -> None:
    series = "podgate_kubernetes_watch_contact_timestamp_seconds"
    for resource in ("pods", "namespaces"):
        telemetry.build_watch_reports(resource).on_contact()
    telemetry.forget_watch("pods")
    assert list(telemetry.watches) == ["namespaces"]
    text = telemetry.metrics.render().decode()
    assert f'{series}{{resource="namespaces"}}' in text
    assert f'{series}{{resource="pods"}}' not in text, "an old contact would look like a broken watch"
