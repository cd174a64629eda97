"""Looks in which each page is accessible and fits: light, dark, on a phone and zoomed."""

from typing import Any

from tests.browser.devtools import DESK, PHONE, Tab
from tests.harness.console import ConsoleClient

LOOKS: dict[str, dict[str, Any]] = {
    "": {"size": DESK},
    "-dark": {"size": DESK, "is_dark": True},
    "-phone": {"size": PHONE},
    "-zoomed": {"size": DESK, "zoom": 2},
}


async def check_look(tab: Tab, client: ConsoleClient, path: str, name: str, look: str) -> None:
    """Check a page in one look, and keep its screenshot."""
    await tab.set_size(**LOOKS[look])
    await tab.open(client.running.issue_address())
    await tab.open(client.running.url + path)
    await tab.shoot(name + look)
    assert await tab.list_violations() == []
    assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def read_without_scripts(tab: Tab, client: ConsoleClient, path: str) -> str:
    """Return the text of a page in a browser without JavaScript."""
    await tab.set_scripts(on=False)
    await tab.open(client.running.issue_address())
    await tab.open(client.running.url + path)
    return " ".join(name for _, name in await tab.list_accessible())
