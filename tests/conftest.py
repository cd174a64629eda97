"""Shared pytest options, event loops, Hypothesis profile, durations, and distribution over workers."""

import asyncio
import gc
import os
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import redis  # noqa: F401  all of it, before Podgate registers it: tests use its clients
from hypothesis import HealthCheck, settings

from tests.harness.fork_server import close_fork_server
from tests.tiers import Cpu, Tiers
from webhook.support.event_loop import EventLoop

_LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": EventLoop,
    "asyncio": asyncio.new_event_loop,
}

# Based on Hypothesis's own profile: the same examples every time in CI, new ones elsewhere.
settings.register_profile(
    "patient", parent=settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")


_MEMORY = Path("/dev/shm")  # noqa: S108  pytest makes a folder of its own in it
_MEMORY_BYTES_MIN = 4 << 30


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh-goldens",
        action="store_true",
        help="rewrite the golden files with the current output; read the diff before you commit it",
    )
    parser.addoption(
        "--all-tiers",
        action="store_true",
        help="print the durations of each tier of tests, and fail if a tier is incomplete",
    )


def pytest_configure(config: pytest.Config) -> None:
    # A disk that syncs each file would slow down the tests that write many.
    if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES_MIN:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
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
    """Run on uvloop, as the server does, unless the module names its LOOPS."""
    names = getattr(getattr(item, "module", None), "LOOPS", ("uvloop",))
    return {name: _LOOPS[name] for name in names}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, None, None]:
    """Disable garbage collection during test collection: it would scan ten thousand tests repeatedly."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def pytest_collection_finish() -> None:
    """Remove the variables that test modules have read: a child server would read them as its settings."""
    for name in [name for name in os.environ if name.startswith("PODGATE_TEST_")]:
        del os.environ[name]


def pytest_sessionfinish() -> None:
    close_fork_server()


@pytest.fixture
def refresh_goldens(request: pytest.FixtureRequest) -> bool:
    """Return whether to rewrite golden files."""
    return bool(request.config.getoption("--refresh-goldens"))
