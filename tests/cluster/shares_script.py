"""Random scripts: what happens to workloads and to Podgate in the life of a cluster, in an order drawn by a seed."""

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime

from tests.cluster.controller_fixture import ControllerFixture
from tests.cluster.forbidden_pods import forbid
from tests.cluster.shares import Workload
from tests.redis_servers import RedisServer

_DENIED_SECONDS = 1.0


class Script:
    """One script. Each act is noted in the history of the workloads that it may change."""

    def __init__(
        self, running: ControllerFixture, redis: RedisServer, workloads: Sequence[Workload], seed: int
    ) -> None:
        self._running, self._redis, self._workloads = running, redis, workloads
        self._generator = random.Random(seed)  # noqa: S311  not for secrets
        self._acts: tuple[Callable[[], str], ...] = (
            *(self._scale, self._scale, self._replace, self._delete_pods, self._rest),
            *(self._deny, self._flush, self._kill_server),
        )

    def play(self, acts: int) -> None:
        for _ in range(acts):
            done = self._generator.choice(self._acts)()
            for workload in self._workloads:
                workload.history.append(f"{datetime.now(UTC):%H:%M:%S.%f} {done}")
            time.sleep(self._generator.choice((0, 0, 0.2, 1.0)))

    def _choose(self) -> Workload:
        return self._generator.choice(self._workloads)

    def _scale(self) -> str:
        return self._choose().scale_at_random(self._generator)

    def _replace(self) -> str:
        return self._choose().replace_at_random(self._generator)

    def _delete_pods(self) -> str:
        return self._choose().delete_at_random(self._generator)

    def _rest(self) -> str:
        for workload in self._workloads:
            workload.wait()
        return "rest"

    def _deny(self) -> str:
        with forbid(self._running.plane, "CREATE", "!has(object.metadata.generateName)"):
            workload = self._choose()
            workload.scale(workload.replicas + 2)
            self._delete_pods()
            time.sleep(_DENIED_SECONDS)
        return f"Pods denied by another, {workload.name} scaled to {workload.replicas}"

    def _flush(self) -> str:
        self._redis.cli("FLUSHALL")
        return "Redis flushed"

    def _kill_server(self) -> str:
        with ExitStack() as after:
            [first, *_] = self._running.installation.servers
            after.callback(self._running.start_server)
            self._running.installation.stop_server(first, kill=True)
        return "a server killed"
