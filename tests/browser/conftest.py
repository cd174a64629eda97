"""Fixtures of the browser tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.browser.devtools import Tab, open_browser

SHOTS = Path(__file__).parents[2] / ".test-results" / "screenshots"


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    """Yield a tab; at the end no page has violated the policy or logged an error."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    async with open_browser(tmp_path, SHOTS) as opened:
        yield opened
        assert opened.problems == []
