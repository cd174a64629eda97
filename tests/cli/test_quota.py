"""`podgate quota show` against a health port: one service's limits, its pool's, and its override."""

import json

import msgspec
import pytest

from tests.app.status_command import plain_port
from tests.cli.command_runner import podgate
from tests.core.reporting.status import OVERRIDES, snapshot
from webhook.core.reporting.status import render_server_status

DOCUMENT = msgspec.json.encode(render_server_status(snapshot(overrides=OVERRIDES)))


def test_table_shows_limits_of_service_and_pool_and_the_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.style", lambda text, **_: text)
    with plain_port(DOCUMENT) as url:
        done = podgate("quota", "show", "payment-api", "--server", url, "-o", "table")
    assert done.code == 0
    assert (
        done.out
        == """\
OF           WINDOW  RESOURCE  USED     HARD  NEXT FREE
payment-api  1m      pods      50       50    in 13s
             1m      cpu       1500m    40    now
pool prod    1m      pods      300      300   in 2s
             1m      cpu       250500m  1000  now

payment-api: quota Audit

payment-api: override quotaFactor: '1.5' until 2027-01-15T08:10:00Z (10m left): INC-1
"""
    )


def test_default_output_without_a_terminal_is_json() -> None:
    with plain_port(DOCUMENT) as url:
        done = podgate("quota", "show", "payment-api", "--server", url)
    shown = json.loads(done.out)
    assert shown["name"] == "payment-api"
    assert [window["hard"] for window in shown["windows"]] == [50, "40"]
    assert shown["pool"]["name"] == "prod"
    assert shown["override"]["reason"] == "INC-1"


def test_service_without_a_pool_shows_none() -> None:
    with plain_port(DOCUMENT) as url:
        assert json.loads(podgate("quota", "show", "web", "--server", url).out)["pool"] is None


def test_unknown_service_exits_4_and_unreachable_server_2() -> None:
    with plain_port(DOCUMENT) as url:
        done = podgate("quota", "show", "nope", "--server", url)
    assert (done.code, done.error) == (4, "no service 'nope': the policy in force has payment-api, ledger, web")
    assert podgate("quota", "show", "nope", "--server", "http://127.0.0.1:1").code == 2
