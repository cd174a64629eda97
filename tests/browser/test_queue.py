"""The queue page in a real browser."""

from dataclasses import replace

import pytest

from tests.browser.devtools import Tab
from tests.browser.looks import LOOKS, check_look, read_without_scripts
from tests.harness.console import PreparedPort, make_ports, open_console, service
from tests.harness.console_rows import depth, queue_document, waiting_pod
from webhook.console.interface.document_reader import ConsolePorts

PODS = (
    waiting_pod("web-5f-x2x9k", classWaiting=3),
    waiting_pod("web-5f-9dk2m", classPlace=2, place=2, classWaiting=3, expiresAt="2026-12-01T04:01:00Z"),
    waiting_pod(
        "ledger-0",
        **{"class": "gold"},
        service="ledger",
        queue="ledger",
        namespace="payments",
        cause="BreakerOpen",
        why="the breaker is OPEN until 2026-12-01T04:04:32Z",
        expectedAt=None,
        notBefore="2026-12-01T04:04:32Z",
    ),
    waiting_pod(
        "train-7",
        **{"class": "bronze"},
        service="training",
        queue="gpu",
        cause="GroupIncomplete",
        why="3 of 8 Pods of its group are here",
        expectedAt=None,
        expiresAt=None,
        lifted=True,
        waitingSeconds=5400,
    ),
)
DEPTHS = [
    depth("web", 2),
    depth("ledger", 1),
    depth("idle", 0, "silver", paused="until 2026-12-01T05:00:00Z: INC-7 (ann)"),
    depth("training", 1, "bronze", oldestSeconds=5400),
]


def build_ports() -> ConsolePorts:
    document = queue_document(*PODS, services=DEPTHS)
    return replace(make_ports(service("web")), leader=PreparedPort({"/queue": document}))


@pytest.mark.parametrize("look", LOOKS)
async def test_the_queue_is_accessible_and_fits(tab: Tab, look: str) -> None:
    async with open_console(build_ports()) as client:
        await check_look(tab, client, "/queue", "queue", look)
        assert "web-5f-x2x9k" in await tab.text("table")


async def test_the_queue_works_without_scripts(tab: Tab) -> None:
    async with open_console(build_ports()) as client:
        assert "3 of 8 Pods of its group are here" in await read_without_scripts(tab, client, "/queue?class=bronze")


async def test_a_countdown_moves_and_a_pod_that_has_gone_is_told(tab: Tab) -> None:
    ports = build_ports()
    assert isinstance(ports.leader, PreparedPort)
    async with open_console(ports) as client:
        await tab.open(client.running.issue_address())
        await tab.open(client.running.url + "/queue")
        element = "document.querySelector('[data-live=\"uid-web-5f-x2x9k/expected\"]').textContent"
        first = await tab.evaluate(element)
        await tab.wait_until(f"{element} !== {first!r}")
        ports.leader.answers["/queue"] = queue_document(*PODS[1:], services=DEPTHS)
        await tab.wait_until("!document.getElementById('changed').hidden")


async def test_an_empty_queue_and_one_that_is_not_known_say_so(tab: Tab) -> None:
    async with open_console(replace(make_ports(), leader=PreparedPort({"/queue": queue_document()}))) as client:
        await check_look(tab, client, "/queue", "queue-empty", "")
        assert "No Pod waits" in await tab.text("main")
    async with open_console(make_ports()) as client:
        await check_look(tab, client, "/queue", "queue-unknown", "")
        assert "What helps" in await tab.text("main")
