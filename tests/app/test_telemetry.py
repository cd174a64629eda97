"""Logs of repeated failures: one line per reason, and one on recovery."""

from dataclasses import fields
from typing import Any, cast

import pytest

from tests.app.test_readiness_log import LogLines
from webhook.adapters.logs import Logs
from webhook.app.telemetry import Telemetry
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


def test_failed_key_fetch_is_logged_once_per_reason(telemetry: Telemetry, lines: LogLines) -> None:
    reports = telemetry.fetch_reports("url")
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
    unusable = telemetry.unusable_keys("url")
    for faults in ("use is 'enc'", "use is 'enc'", "use is 'sign'"):
        unusable.enter(faults)
    unusable.leave()
    ignored = "info", "unusable keys ignored", None
    assert lines.written == [ignored, ignored, ("info", "all keys are usable", None)]


def test_watch_that_has_ended_is_in_neither_metrics_nor_status(telemetry: Telemetry) -> None:
    series = "podgate_kubernetes_watch_contact_timestamp_seconds"
    for resource in ("pods", "namespaces"):
        telemetry.watched(resource).on_contact()
    telemetry.unwatched("pods")
    assert list(telemetry.watches) == ["namespaces"]
    text = telemetry.metrics.render().decode()
    assert f'{series}{{resource="namespaces"}}' in text
    assert f'{series}{{resource="pods"}}' not in text, "an old contact would look like a broken watch"
