"""Fixtures for any test folder: `pytest_plugins = ("tests.redis_servers.fixtures",)` in the test module brings them.

Each runs its test once on every server. Take `redis_server` where the data are all that a test touches; take
`own_redis_server` to stop, pause or configure one.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redis_servers.inventory import RedisProgram, names, program
from tests.redis_servers.server import RedisServer


@pytest.fixture(scope="session", params=names())
def redis_program(request: pytest.FixtureRequest) -> RedisProgram:
    """Return each of the servers in turn."""
    return program(request.param)


@pytest.fixture(scope="session")
def shared_redis_server(redis_program: RedisProgram, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Run one server of each kind for all tests: take `redis_server`, which is this one, emptied."""
    with RedisServer(redis_program, tmp_path_factory.mktemp(redis_program.name) / "server") as server:
        yield server


@pytest.fixture
def redis_server(shared_redis_server: RedisServer) -> RedisServer:
    """Return a running server without data or scripts."""
    shared_redis_server.cli("FLUSHALL")
    shared_redis_server.cli("SCRIPT", "FLUSH")
    return shared_redis_server


@pytest.fixture
def own_redis_server(redis_program: RedisProgram, tmp_path: Path) -> Iterator[RedisServer]:
    """Run a server for this test alone."""
    with RedisServer(redis_program, tmp_path / "redis") as server:
        yield server
