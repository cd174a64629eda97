"""What all tests share: options, event loops, property tests without deadlines, durations, and their distribution."""

import asyncio
import gc
import os
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.harness.fork_server import close_fork_server
from tests.tiers import Cpu, Tiers
from webhook.support.event_loop import EventLoop

_LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": EventLoop,
    "asyncio": asyncio.new_event_loop,
}

# On top of what Hypothesis chooses itself: in CI the same examples every time, at a desk new ones.
settings.register_profile(
    "patient", parent=settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh-goldens",
        action="store_true",
        help="rewrite the golden files with what the code says today; read the difference before it is kept",
    )
    parser.addoption(
        "--all-tiers",
        action="store_true",
        help="print what each tier of the tests costs, and fail where one has not run whole",
    )


def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    is_distributed = bool(config.getoption("numprocesses", default=None))
    if is_worker or not is_distributed:
        config.pluginmanager.register(Cpu())
    if not is_worker:
        config.pluginmanager.register(Tiers(config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute modules over the workers of `-n` as `tests/workers.py` says."""
    from tests.workers import ModuleScheduling  # noqa: PLC0415  pytest-xdist is loaded by then

    return ModuleScheduling(config, log)


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run on uvloop, as the server does; a module that must work elsewhere too names its LOOPS."""
    names = getattr(getattr(item, "module", None), "LOOPS", ("uvloop",))
    return {name: _LOOPS[name] for name in names}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, None, None]:
    """Collect without collections of garbage: ten thousand tests stay, and were gone through again and again."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def pytest_collection_finish() -> None:
    """Take away what the test modules have read: a server that inherits it would take it for a setting of its own."""
    for name in [name for name in os.environ if name.startswith("PODGATE_TEST_")]:
        del os.environ[name]


def pytest_sessionfinish() -> None:
    close_fork_server()


@pytest.fixture
def refresh_goldens(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten."""
    return bool(request.config.getoption("--refresh-goldens"))
