"""The service page in a real browser."""

from dataclasses import replace
from typing import Any

import pytest

from tests.browser.devtools import Tab
from tests.browser.looks import LOOKS, check_look, read_without_scripts
from tests.harness.console import NOW, PreparedPort, breaker, make_ports, open_console, service, shares
from tests.harness.console_rows import denial, queue_document, waiting_pod
from webhook.console.interface.document_reader import ConsolePorts

OPENED = breaker(
    "OPEN",
    272,
    reason="errorRate: 97 % of 214 requests failed in 3 intervals of 1s, threshold 95 %",
    since="2026-12-01T03:59:32.000Z",
    trippedAt="2026-12-01T03:59:32.000Z",
    generation=7,
)
RECORDS = [
    *(
        denial(f"r{n}", codes=["BreakerOpen"], message="breaker of payment-api is OPEN until 04:04:32Z")
        for n in range(9)
    ),
    denial("q5", second=20, breaker={"state": "HALF_OPEN", "generation": 5, "reason": "openFor passed"}),
    denial("q4", second=10, breaker={"state": "CLOSED", "generation": 2}),
    denial(
        "q3", owner={"kind": "Job", "name": "report-28891"}, namespace="reports", message="pods in 1m: hard 50, used 50"
    ),
]
METRICS = (
    b'podgate_outcomes_total{result="ok",service="payment-api",source="Pushed"} 1200\n'
    b'podgate_outcomes_total{result="error",service="payment-api",source="Pushed"} 834\n'
)


def build_ports(state: dict[str, Any] | None = OPENED) -> ConsolePorts:
    variants = shares({"spot": breaker("OPEN", 90), "on-demand": None})
    own = service("payment-api", used=50, breaker=state, pool="shared", shares=variants)
    own["windows"] += [
        {
            "window": "1h",
            "resource": "cpu",
            "hard": "200",
            "used": "164",
            "full": False,
            "nextFree": None,
            "nextFreeSeconds": 0,
        },
        {"window": "standing", "resource": "pods", "hard": 40, "used": 12, "surge": 4, "full": False, "enforced": True},
    ]
    pool = {
        "name": "shared",
        "members": ["payment-api", "ledger"],
        "windows": [{"window": "1m", "resource": "pods", "hard": 90, "used": 61}],
    }
    ports = make_ports(own, denied=RECORDS, pools=[pool])
    assert isinstance(ports.plain, PreparedPort)
    ports.plain.answers["/metrics"] = METRICS
    pods = [waiting_pod("web-5f-x2x9k"), waiting_pod("web-5f-9dk2m", cause="BreakerOpen", why="the breaker is OPEN")]
    return replace(ports, leader=PreparedPort({"/queue": queue_document(*pods)}))


@pytest.mark.parametrize("look", LOOKS)
async def test_a_service_is_accessible_and_fits(tab: Tab, look: str) -> None:
    async with open_console(build_ports()) as client:
        await check_look(tab, client, "/service/payment-api", "service", look)
        assert "Roll back what fails" in await tab.text("main")


async def test_a_service_is_shown_without_scripts(tab: Tab) -> None:
    async with open_console(build_ports()) as client:
        text = await read_without_scripts(tab, client, "/service/payment-api")
    assert "Who is refused" in text
    assert "reports/report-28891" in text


async def test_the_diagram_counts_down_and_follows_the_breaker(tab: Tab) -> None:
    ports = build_ports()
    assert isinstance(ports.plain, PreparedPort)
    async with open_console(ports) as client:
        await tab.open(client.running.issue_address())
        await tab.open(client.running.url + "/service/payment-api")
        line = "document.querySelector('[data-live=\"diagram/OPEN/line\"]').textContent"
        first = await tab.evaluate(line)
        await tab.wait_until(f"{line} !== {first!r}")
        document = ports.plain.answers["/status"]
        probing = breaker("HALF_OPEN", probes={"leased": 1, "succeeded": 1, "needed": 3, "early": 0})
        ports.plain.answers["/status"] = {
            **document,
            "time": NOW,
            "services": [service("payment-api", breaker=probing)],
        }
        now = "document.querySelector('.box[data-state]').dataset.live"
        await tab.wait_until(f"{now} === 'diagram/HALF_OPEN'")
        assert await tab.evaluate(line) == ""
        assert await tab.text("[data-live='probes']") == "1 of 3 succeeded, 1 without an outcome yet"


async def test_a_service_with_nothing_says_so_everywhere(tab: Tab) -> None:
    own = {**service("batch", breaker=None), "windows": []}
    async with open_console(make_ports(own)) as client:
        await check_look(tab, client, "/service/batch", "service-empty", "")
        assert "No limit" in await tab.text("main")
        await tab.open(client.running.url + "/service/nowhere")
        assert await tab.list_violations() == []
        [problem] = tab.problems
        assert "404" in problem
        tab.problems.clear()
