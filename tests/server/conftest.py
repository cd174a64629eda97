import asyncio
from collections.abc import Callable

import pytest

from webhook.wiring.event_loop import EventLoop

_LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": EventLoop,
    "asyncio": asyncio.new_event_loop,
}


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run on uvloop, as the server does; a module that must work elsewhere too names its LOOPS."""
    names = getattr(getattr(item, "module", None), "LOOPS", ("uvloop",))
    return {name: _LOOPS[name] for name in names}
