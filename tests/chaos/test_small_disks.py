"""A full disk is that of the Redis that it is meant for, which refuses writes until there is room again."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from tests.chaos.redis_program import write_program
from tests.chaos.small_disks import SmallDisks
from tests.cluster.processes import ComponentError
from tests.redis_servers import RedisServer, program
from tests.redis_servers.waiting import wait_until

_OPTIONS = ("--appendonly", "yes", "--appendfsync", "everysec")
_PAGE = "x" * (1 << 14)


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[SmallDisks | ComponentError]:
    """Return two disks, or the error if nothing may be mounted here."""
    made = SmallDisks(tmp_path / "disks", ("one", "other"))
    with ExitStack() as stack:
        try:
            stack.enter_context(made)
        except ComponentError as error:
            yield error
            return
        yield made
    assert not [*(made.folder / "one").iterdir()]


def refuses(server: RedisServer) -> bool:
    """Whether it refuses to write; each try is too large for a page."""
    try:
        server.cli("SET", "more", _PAGE)
    except ResponseError as error:
        return str(error).startswith("MISCONF")
    return False


def test_a_redis_on_a_full_disk_refuses_writes_until_there_is_room(
    disks: SmallDisks | ComponentError, tmp_path: Path
) -> None:
    if isinstance(disks, ComponentError):
        assert "run as root" in str(disks)
        return
    small = write_program(program("redis-8.2"), tmp_path / "program", disks)
    with (
        RedisServer(small, tmp_path / "one", *_OPTIONS) as server,
        RedisServer(small, tmp_path / "other", *_OPTIONS) as other,
    ):
        server.cli("SET", "kept", "1")
        assert (disks.find("one") / "appendonlydir").is_dir()
        disks.fill("one")
        disks.fill("one")
        wait_until(lambda: refuses(server), "it refuses writes")
        assert server.cli("GET", "kept") == b"1"
        assert not refuses(other)
        disks.clear("one")
        disks.clear("one")
        wait_until(lambda: not refuses(server), "it writes again")
        server.kill()
        server.start()
        assert server.cli("GET", "kept") == b"1"
