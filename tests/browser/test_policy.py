"""The policy page in a real browser: its looks, and that it is accessible."""

from typing import Any

import pytest

from tests.browser.devtools import DESK, PHONE, Tab
from tests.console.policies import HASHES, PreparedPolicies, make_policy_ports, make_stored
from tests.harness.console import open_console

LOOKS = {
    "policy": {"size": DESK},
    "policy-dark": {"size": DESK, "is_dark": True},
    "policy-phone": {"size": PHONE},
    "policy-zoomed": {"size": DESK, "zoom": 2},
}


@pytest.mark.parametrize("name", LOOKS)
async def test_the_policy_is_accessible_and_fits_in_every_look(tab: Tab, name: str) -> None:
    looks: dict[str, Any] = LOOKS[name]
    async with open_console(make_policy_ports(PreparedPolicies(make_stored()))) as client:
        await tab.set_size(**looks)
        await tab.open(client.running.issue_address())
        await tab.open(f"{client.running.url}/policy?a={HASHES[0]}&b={HASHES[1]}")
        await tab.shoot(name)
        assert await tab.list_violations() == []
        assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_without_a_cluster_the_next_step_is_shown(tab: Tab) -> None:
    async with open_console(make_policy_ports(None)) as client:
        await tab.open(client.running.issue_address())
        await tab.open(f"{client.running.url}/policy")
        await tab.shoot("policy-alone")
        assert await tab.list_violations() == []
