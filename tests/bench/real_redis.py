"""Redis server on the core of the load generator."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.cpu import GENERATOR_CORE, pin_to
from tests.redis_servers import RedisServer, program

REDIS = "redis-8.2"


@contextmanager
def real_redis(name: str = REDIS) -> Iterator[RedisServer]:
    """Run a Redis server until the block ends."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podgate-bench-")))
        with pin_to(GENERATOR_CORE):
            redis = stack.enter_context(RedisServer(program(name), folder / "redis"))
        yield redis
