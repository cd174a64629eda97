"""What a person looks for, found by keys alone from the first page."""

from dataclasses import replace

from tests.browser.devtools import Tab
from tests.harness.console import PreparedPort, make_ports, open_console, service
from tests.harness.console_rows import queue_document, waiting_pod


async def test_the_pod_that_waits_longest_is_one_link_away(tab: Tab) -> None:
    pods = [waiting_pod("new", since="2026-12-01T03:59:00Z"), waiting_pod("old", since="2026-12-01T03:00:00Z")]
    ports = make_ports(service("web"), queues=[{"service": "web", "waiting": 2}])
    ports = replace(ports, leader=PreparedPort({"/queue": queue_document(*pods)}))
    async with open_console(ports) as client:
        await tab.open(client.running.issue_address())
        assert await tab.list_violations() == []
        for _ in range(40):
            await tab.press("Tab")
            if await tab.evaluate("document.activeElement.matches('td[data-label=Waiting] a')"):
                break
        await tab.wait_for_load(tab.press("Enter"))
        assert "old" in await tab.text("tbody tr")
        assert await tab.list_violations() == []
