"""Leases: servers that count each other while they end and start, and while etcd has no space, or does not answer."""

import asyncio
from collections.abc import Mapping
from random import Random
from unittest.mock import patch

import msgspec

from tests.chaos.checkers.replica_counts import LEASES, NO_SPACE
from tests.chaos.history import History, Status
from tests.chaos.virtual.written import Written
from tests.controller.controller_simulation import NO_REPORTS, START_US
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.kubernetes import ServerLeases, ServerLeaseTiming
from webhook.adapters.kubernetes.api.requests import ApiError, RefusedError, UnreachedError
from webhook.adapters.kubernetes.leases.lease_object import LeaseObject, parse_lease

SERVERS = ("server-1", "server-2", "server-3")
STEPS = 60
"""In each of them one thing happens, or nothing."""
REST_SECONDS = 120
TIMING = ServerLeaseTiming()
_SERVICES = "\n- name: web\n  match: {namespaces: [shop]}\n"


class KeptLeases:
    """The Leases that etcd has. `failure` is the answer to each write, and to all else if it is no refusal."""

    def __init__(self) -> None:
        self.found: dict[str, LeaseObject] = {}
        self.failure: ApiError | None = None
        self._revision = 0

    def list(self) -> dict[str, LeaseObject]:
        if self.failure is not None and not self.failure.status:
            raise self.failure
        return dict(self.found)

    def write(self, lease: LeaseObject, holder: str) -> None:
        if self.failure is not None:
            raise self.failure
        self._revision += 1
        document = lease.build_held(holder, TIMING.duration_seconds)
        document["metadata"] = {**document["metadata"], "resourceVersion": str(self._revision)}
        self.found[lease.name] = parse_lease(msgspec.json.encode(document))


class SteppedServer(ServerLeases):
    """The real view of one server, whose requests `kept` answers. A stage steps its rounds."""

    def __init__(self, host: str, kept: KeptLeases) -> None:
        super().__init__(None, host, is_unique=True, reports=NO_REPORTS, timing=TIMING)  # type: ignore[arg-type]
        self._kept = kept
        self._host = host
        self.shown: Mapping[str, object] = {"count": 1, "ordinal": 0, "source": "default"}
        self.on_count = self._show

    async def _list(self) -> dict[str, LeaseObject]:
        return self._kept.list()

    async def _renew(self, mine: LeaseObject) -> None:
        self._kept.write(mine, self._host)

    async def _delete(self, name: str, version: str = "") -> None:
        del version
        self._kept.found.pop(name, None)

    def _show(self, count: int, ordinal: int) -> None:
        self.shown = {"count": count, "ordinal": ordinal, "source": LEASES}


class LeasesStage:
    """`play` returns the history: what each server shows each second, by how many it would divide limits."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311  the same history again
        self.clock = VirtualClock(START_US)
        self.written = Written(self.clock, seed, _SERVICES, parts={**dict.fromkeys(SERVERS, "server"), "etcd": "etcd"})
        self.kept = KeptLeases()
        self.servers: dict[str, SteppedServer] = {}
        self.due: dict[str, float] = {}
        self.started = self.faults = 0

    async def play(self) -> History:
        # Rounds do not sleep: of the loop they read only its clock.
        with patch.object(asyncio.get_running_loop(), "time", lambda: self.written.now):
            for part in SERVERS:
                self._start(part)
            await self._wait(REST_SECONDS)
            for _ in range(STEPS):
                await self._act(self.random.random())
                await self._wait(self.random.randint(1, 30))
            await self._wait(REST_SECONDS)
        return self.written.finish([])

    async def _act(self, draw: float) -> None:
        if draw < 0.3:
            await self._fail(NO_SPACE, RefusedError(500, "etcdserver: mvcc: database space exceeded"))
        elif draw < 0.4:
            await self._fail("etcd-leader-kill", UnreachedError("no answer in time"))
        elif draw < 0.5:
            await self._replace(self.random.choice(SERVERS), "kill")
        elif draw < 0.55:
            await self._replace(self.random.choice(SERVERS), "restart")

    async def _fail(self, kind: str, failure: ApiError) -> None:
        """Let no Lease be written for a while, also for longer than one counts."""
        self.faults += 1
        self.written.add_fault(self.faults, kind, "etcd")
        self.kept.failure = failure
        await self._wait(self.random.randint(2, 2 * TIMING.duration_seconds))
        self.kept.failure = None
        self.written.add_fault(self.faults, kind, "etcd", ended=True)

    async def _replace(self, part: str, kind: str) -> None:
        """End a server; the next one has another name, as that of another Pod."""
        self.faults += 1
        self.written.add_fault(self.faults, kind, part)
        gone = self.servers.pop(part)
        if kind == "restart":
            await gone._leave()
        await self._wait(self.random.randint(1, 8))
        self._start(part)
        self.written.add_fault(self.faults, kind, part, ended=True)

    def _start(self, part: str) -> None:
        self.started += 1
        self.servers[part] = SteppedServer(f"{part}-{self.started}", self.kept)
        self.due[part] = self.written.now

    async def _wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.set(self.clock.now_us() + 1_000_000)
            for part, server in self.servers.items():
                if self.due[part] <= self.written.now:
                    await server._round()
                    self.due[part] = self.written.now + TIMING.renew_seconds * self.random.uniform(0.8, 1)
                self.written.statuses.append(Status(self.written.now, part, {"replicas": server.shown}))
