"""Next steps: each page leads to what a person looks for after it, also one that is refused."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path

from tests.console.acting import make_hands
from tests.console.token_serving import serve
from tests.harness.console import PreparedPort, make_ports, open_console, service
from tests.harness.console_rows import denial, queue_document, waiting_pod


async def test_a_viewer_without_the_status_right_is_led_to_the_pages_of_namespaces() -> None:
    async with serve() as served:
        status, page = await served.get("/", "token-of-bob")
        assert status == 403
        assert '<a href="/explain">Why a Pod does not run</a>' in page
        assert '<a href="/queue">Queue</a>' in page
        assert "Back to the services" not in page
        for path in ("/explain", "/queue"):
            assert (await served.get(path, "token-of-bob"))[0] == 200


async def test_other_errors_lead_back_to_the_services() -> None:
    async with open_console(make_ports(service("web"))) as client:
        status, page = await client.get("/service/none")
    assert (status, "Back to the services" in page, "/explain" in page) == (404, True, False)


async def test_figures_of_the_overview_lead_to_their_pods() -> None:
    queues = [{"service": "a&b", "waiting": 2}]
    record = denial("r1", service="a&b", at=datetime.now(UTC) - timedelta(minutes=1))
    ports = make_ports(service("a&b"), service("fine"), denied=[record], queues=queues)
    async with open_console(ports) as client:
        _, page = await client.get("/")
    assert 'href="/queue?service=a%26b&amp;sort=wait"' in page
    assert 'href="/service/a%26b#refused"' in page
    assert "service=fine" not in page
    assert "/service/fine#refused" not in page


async def test_a_column_of_the_queue_puts_the_longest_wait_first() -> None:
    ports = replace(make_ports(service("web")), leader=PreparedPort({"/queue": queue_document(waiting_pod("a"))}))
    async with open_console(ports) as client:
        _, page = await client.get("/queue?service=web")
        assert "?service=web&amp;namespace=&amp;class=&amp;sort=wait" in page
        _, page = await client.get("/queue?sort=wait")
        assert "longest first" not in page


async def test_a_limit_leads_to_a_grant_of_its_window(tmp_path: Path) -> None:
    address = "/service/web/quota/grant?window=1m&hard=pods%3D&for=1h"
    link = f'href="{escape(address)}"'
    ports = make_ports(service("web"))
    async with open_console(ports) as client:
        assert link not in (await client.get("/service/web"))[1]
    async with open_console(ports, make_hands(tmp_path / "overrides.yaml")) as client:
        assert link in (await client.get("/service/web"))[1]
        _, page = await client.get(address)
    for name, value in (("window", "1m"), ("hard", "pods="), ("for", "1h")):
        assert f'name="{name}" value="{value}"' in page
