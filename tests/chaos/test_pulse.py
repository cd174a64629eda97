"""The pulse of a Redis: a fault of its own while a PING has no answer, and none while all is well."""

from pathlib import Path

from tests.chaos.history import BEGAN, ENDED, SLOW_NODE
from tests.chaos.pulse import Pulse
from tests.chaos.record import Record
from tests.redis_servers import RedisServer, program
from tests.redis_servers.waiting import wait_until


def test_a_node_that_leaves_a_ping_without_an_answer_is_slow_until_it_answers(tmp_path: Path) -> None:
    record = Record()
    with RedisServer(program("redis-8.2"), tmp_path / "redis") as server, Pulse("redis-1", server, record):
        server.pause()
        wait_until(lambda: [fault.phase for fault in record.faults][-1:] == [BEGAN], "the node is slow")
        server.resume()
        wait_until(lambda: [fault.phase for fault in record.faults][-1:] == [ENDED], "the node answers")
    assert {(fault.number, fault.kind, fault.parts) for fault in record.faults} == {(0, SLOW_NODE, ("redis-1",))}
