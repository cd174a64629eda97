"""`podgate check` on real servers whose restart would lose charges, and its remedy, run as it is printed."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.redis_store.transport import open_link
from tests.core.checks.checks import CHECKS, FACTS, document
from tests.redis_servers import RedisCluster, RedisProgram, RedisServer
from tests.redis_servers.access import acl_file, user
from tests.redis_servers.waiting import wait_until
from webhook.adapters.redis_store.server_status import server_status
from webhook.core.checks.check import Observation, run_check
from webhook.core.reporting.status_parts import StoreServers, StoreStatus

pytest_plugins = ("tests.redis_servers.fixtures",)

RENAMED = ("--rename-command", "CONFIG", "no-config")
SNAPSHOTS = {
    "hourly": (
        ("--save", "3600 1"),
        "no: a restart loses the charges since its last snapshot, up to 3600 s (save 3600 1)",
    ),
    "usual": (("--save", "3600 1 300 100 60 10000"), "up to 3600 s (save 3600 1 300 100 60 10000)"),
    "none": (("--save", ""), "no: and it saves no snapshots, so that a restart loses all charges"),
    "renamed": (RENAMED, "no: its snapshots are not known (CONFIG GET save is not permitted)"),
    "frequent": (("--save", "30 1"), None),
    "file": (("--appendonly", "yes"), None),
    "file-and-renamed": (("--appendonly", "yes", *RENAMED), None),
}


def findings(servers: StoreServers, window: str | None = "1h") -> list[Observation]:
    """Return the findings of the check on servers, for a service with this window."""
    status = document(store=StoreStatus("redis", servers=servers))
    rows: list[Mapping[str, Any]] = [{"window": "1m"}, {"window": "standing", "surge": "0"}]
    status["services"] = [{"name": "a", "windows": [{"window": window}, *rows] if window else rows}]
    return list(run_check(CHECKS["redis-forgets"], replace(FACTS, status=status)).findings)


@asynccontextmanager
async def read_servers(url: str) -> AsyncIterator[StoreServers]:
    async with open_link(url) as link:
        yield await server_status(link)


@pytest.mark.parametrize("kind", SNAPSHOTS)
async def test_server_without_a_file_is_found_with_what_a_restart_loses(
    redis_program: RedisProgram, tmp_path: Path, kind: str
) -> None:
    options, value = SNAPSHOTS[kind]
    with RedisServer(redis_program, tmp_path / "redis", *options) as server:
        if options[0] == "--save":  # Redis 6.2 keeps the harness's own
            server.cli("CONFIG", "SET", "save", options[1])
        async with read_servers(server.url) as told:
            assert told.error == ""
            found = findings(told)
            assert findings(told, window=None) == [], "servers submit the charges of a minute again"
        assert [value in finding.value for finding in found if value] == ([True] if value else [])
        assert all(finding.value.endswith("; a counts for 1h") for finding in found)


async def test_user_without_the_right_is_told_that_snapshots_are_not_known(
    redis_program: RedisProgram, tmp_path: Path
) -> None:
    users = acl_file(tmp_path / "users.acl", user("users", "serving"))
    with RedisServer(redis_program, tmp_path / "redis", "--aclfile", str(users)) as server:
        async with open_link(f"redis://podgate:serving@127.0.0.1:{server.port}/0") as link:
            told = await server_status(link)
            [found] = findings(told)
            assert "its snapshots are not known (CONFIG GET save is not permitted)" in found.value
            connections = server.cli("INFO", "clients")["connected_clients"]
            await server_status(link)
            wait_until(
                lambda: server.cli("INFO", "clients")["connected_clients"] == connections, "its connection is closed"
            )


async def test_remedy_ends_the_finding(redis_program: RedisProgram, tmp_path: Path) -> None:
    with RedisServer(redis_program, tmp_path / "redis") as server:
        async with read_servers(server.url) as told:
            [found] = findings(told)
        command, separator, _ = found.remedy.partition(" on this server")
        assert separator
        server.cli(*command.split())
        async with read_servers(server.url) as told:
            assert findings(told) == []
            assert [server.append_only for server in told.servers] == [True]


async def test_each_node_of_a_cluster_is_judged(redis_cluster: RedisCluster) -> None:
    async with read_servers(redis_cluster.url) as told:
        places = {f"Redis 127.0.0.1:{node.port}" for node in redis_cluster.nodes}
        assert {finding.object for finding in findings(told)} == places
