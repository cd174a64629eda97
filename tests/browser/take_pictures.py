"""Takes the README's pictures of the console, over the prepared figures of the browser tests: `make pictures`."""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.browser import test_overview, test_service
from tests.browser.devtools import Tab, open_browser
from tests.console.pipeline_documents import SHOP, make_pipeline_ports
from tests.console.policies import PreparedPolicies
from tests.harness.console import make_ports, open_console
from webhook.console.interface.document_reader import ConsolePorts

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
SIZE = (1080, 720)
PAGES: dict[str, tuple[str, Callable[[], ConsolePorts]]] = {
    "overview": ("/", lambda: make_ports(*test_overview.SERVICES, queues=test_overview.QUEUES)),
    "service": ("/service/payment-api", test_service.build_ports),
    "pipeline": ("/policy/edit", lambda: make_pipeline_ports(PreparedPolicies(report=SHOP))),
}
"""By the end of a picture's name: the page, and what it is made from."""


async def take_picture(tab: Tab, name: str) -> None:
    path, build_ports = PAGES[name]
    async with open_console(build_ports()) as client:
        await tab.open(client.running.issue_address())
        await tab.open(client.running.url + path)
        await tab.shoot(f"console-{name}", height=SIZE[1])


async def take_pictures() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        async with open_browser(Path(folder), PICTURES) as tab:
            await tab.set_size(SIZE)
            for name in PAGES:
                await take_picture(tab, name)


if __name__ == "__main__":
    asyncio.run(take_pictures())
