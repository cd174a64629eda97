"""Fixtures for any test folder: a test module imports them with `pytest_plugins = ("tests.redis_servers.fixtures",)`.

Each runs its test once on every server. `redis_server` is for tests that only change data, `own_redis_server` for tests
that stop, pause or configure the server. A test may move slots of `redis_cluster`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.redis_servers.access import CLUSTER_PASSWORD, acl_file, user
from tests.redis_servers.cluster import RedisCluster
from tests.redis_servers.inventory import RedisProgram, names, program
from tests.redis_servers.server import RedisServer


@pytest.fixture(scope="session", params=names())
def redis_program(request: pytest.FixtureRequest) -> RedisProgram:
    """Return each server program in turn."""
    return program(request.param)


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], RedisServer]]:
    """Return a running server by its name, shared by all tests, without data or scripts."""
    running: dict[str, RedisServer] = {}
    with ExitStack() as stack:

        def empty(name: str) -> RedisServer:
            if name not in running:
                folder = tmp_path_factory.mktemp(name) / "server"
                running[name] = stack.enter_context(RedisServer(program(name), folder))
            running[name].cli("FLUSHALL")
            running[name].cli("SCRIPT", "FLUSH")
            return running[name]

        yield empty


@pytest.fixture
def redis_server(redis_program: RedisProgram, shared_redis: Callable[[str], RedisServer]) -> RedisServer:
    """Return a running server without data or scripts, shared with other tests."""
    return shared_redis(redis_program.name)


@pytest.fixture
def own_redis_server(redis_program: RedisProgram, tmp_path: Path) -> Iterator[RedisServer]:
    """Run a server for this test alone."""
    with RedisServer(redis_program, tmp_path / "redis") as server:
        yield server


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], RedisCluster]]:
    """Return a running Cluster by the name of its servers, shared by all tests, without data or scripts.

    It has the documented user `podgate` with the password CLUSTER_PASSWORD; `default` may run any command.
    """
    running: dict[str, RedisCluster] = {}
    with ExitStack() as stack:

        def empty(name: str) -> RedisCluster:
            if name not in running:
                folder = tmp_path_factory.mktemp(f"cluster-{name}")
                users = acl_file(folder / "users.acl", user("cluster", CLUSTER_PASSWORD))
                cluster = RedisCluster(program(name), folder / "cluster", "--aclfile", str(users))
                running[name] = stack.enter_context(cluster)
            running[name].empty()
            return running[name]

        yield empty


@pytest.fixture
def redis_cluster(redis_program: RedisProgram, shared_cluster: Callable[[str], RedisCluster]) -> RedisCluster:
    """Return a running Cluster of three masters without data or scripts, shared with other tests."""
    return shared_cluster(redis_program.name)
