"""One run of the light stage: parts, traffic, faults, and what was seen."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from tests.chaos.charge_log import ChargeLog
from tests.chaos.end_state import read_transitions
from tests.chaos.history import BEGAN, DONE, ENDED, UNKNOWN, Act, End, History, Plan, RedisSnapshot, Status
from tests.chaos.light.api_server import NO_ANSWER, LightApiServer
from tests.chaos.light.hurting import hurt_redis, hurt_server
from tests.chaos.light.policy import NAMESPACES, POLICY, REPORTER
from tests.chaos.light.schedules import SERVERS, Schedule
from tests.chaos.light.servers import LightServer
from tests.chaos.light.stores import PASSWORD, LightStore, list_parts, open_store
from tests.chaos.pulse import Pulse
from tests.chaos.record import Record
from tests.chaos.recorders import _read_charges, build_review
from tests.harness.server_process import Files
from tests.redis_servers import RedisServer
from webhook.core.document.loading import compute_hash

RATE = 80
"""Pods a second over all services."""
IN_FLIGHT_MAX = 64
STORE_DEADLINE = "1s"
"""More than the usual 50 ms: a busy machine is no fault."""
_WEIGHTS = {"local": 4, "deny": 2, "allow": 2, "sized": 3, "member-a": 2, "member-b": 2, "noisy": 2, "api": 2}
_CPUS = ("100m", "250m", "500m", "1", "1500m")
_POLL_SECONDS = 0.5
GOOD_SECONDS, GOOD_AND_BAD_SECONDS = 1.0, 4.0
"""How long the outcomes of service api are good, of how long in turn."""


class LightStage:
    """A run. `run` returns its history; all processes have ended then."""

    def __init__(self, folder: Path, seed: int, schedule: Schedule) -> None:
        self._folder = folder
        self._seed = seed
        self._schedule = schedule
        self._random = Random(f"{seed} traffic")  # noqa: S311  the same traffic again
        self._record = Record()
        self._planned = schedule.draw(seed)
        stores = list_parts(is_cluster=schedule.is_cluster)
        self._parts = {**dict.fromkeys(SERVERS, "server"), **dict.fromkeys(stores, "redis")}
        self._number = 0
        self._began_at = 0.0

    async def run(self) -> History:
        files = Files.create(self._folder, POLICY)
        with ExitStack() as stack:
            store = stack.enter_context(open_store(self._folder, is_cluster=self._schedule.is_cluster))
            for part, server in store.servers.items():
                stack.enter_context(ChargeLog(part, server, self._record))
                if self._schedule.is_cluster:
                    stack.enter_context(Pulse(part, server, self._record))
            async with self._serve(files, store) as servers:
                return await self._play(files, store, servers)

    @asynccontextmanager
    async def _serve(self, files: Files, store: LightStore) -> AsyncIterator[list[LightServer]]:
        password = files.folder / "store-password"
        password.write_text(PASSWORD)
        shared = ("--store", store.url, "--store-password-file", str(password), "--store-deadline", STORE_DEADLINE)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            context = files.pki.context(files.caller)
            servers = [
                LightServer(part, files, (*shared, "--replicas", "2", "--ordinal", str(ordinal)), session, context)
                for ordinal, part in enumerate(SERVERS)
            ]
            try:
                await asyncio.gather(*(server.start() for server in servers))
                yield servers
            finally:
                await asyncio.gather(*(server.stop() for server in servers))

    async def _play(self, files: Files, store: LightStore, servers: list[LightServer]) -> History:
        api_server = LightApiServer(servers, files.signer.token(), self._record, self._random)
        self._began_at = time.time()
        watching = [asyncio.create_task(self._watch(server)) for server in servers]
        watching.append(asyncio.create_task(self._follow_decisions(servers)))
        playing = [
            asyncio.create_task(self._send_pods(api_server)),
            asyncio.create_task(self._send_outcomes(files, servers)),
            asyncio.create_task(self._hurt(store, servers)),
        ]
        try:
            await asyncio.gather(*playing)
            await asyncio.sleep(self._schedule.rest_seconds)
        finally:
            for task in (*watching, *playing):
                task.cancel()
            await asyncio.gather(*watching, *playing, return_exceptions=True)
        await self._read_decisions(servers)
        snapshots = [await asyncio.to_thread(_read_redis, part, redis) for part, redis in store.servers.items()]
        end = await self._read_end(servers)
        names = {server.part: server.replica for server in servers}
        await asyncio.gather(*(server.stop() for server in servers))
        logs = {server.part: server.log for server in servers}
        return History(
            plan=Plan(
                self._seed,
                self._schedule.seconds,
                self._parts,
                {compute_hash(POLICY.encode()): POLICY},
                self._planned,
                self._began_at,
                {"secrets": [PASSWORD], "replica_names": names, "stage": "light", "shards": store.shards},
            ),
            faults=self._record.faults,
            acts=self._record.acts,
            audit=api_server.audit,
            reviews=sorted(self._record.reviews.values(), key=lambda review: review.at),
            charges=self._record.charges,
            redis=snapshots,
            statuses=self._record.statuses,
            transitions=read_transitions(logs),
            end=end,
            logs=logs,
        )

    async def _send_pods(self, api_server: LightApiServer) -> None:
        """Ask for Pods at a constant rate, as far as answers come."""
        names = [name for name in NAMESPACES for _ in range(_WEIGHTS.get(name, 1))]
        under_way: set[asyncio.Task[None]] = set()
        began = time.monotonic()
        while (now := time.monotonic() - began) < self._schedule.seconds:
            while self._number < now * RATE and len(under_way) < IN_FLIGHT_MAX:
                self._number += 1
                work = api_server.create(self._random.choice(names), self._number, self._random.choice(_CPUS))
                task = asyncio.create_task(work)
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            if self._number < now * RATE:
                self._number = int(now * RATE)  # a slow machine leaves requests out
            await asyncio.sleep(0.5 / RATE)
        await asyncio.gather(*under_way)

    async def _send_outcomes(self, files: Files, servers: list[LightServer]) -> None:
        """Report outcomes of service api ten times a second: good for a time, then bad for a time."""
        context, token = files.pki.context(files.pki.client("prober")), files.other.token(client_id=REPORTER)
        began = time.monotonic()
        while (now := time.monotonic() - began) < self._schedule.seconds:
            is_good = now % GOOD_AND_BAD_SECONDS < GOOD_SECONDS
            await self._report(servers, token, context, is_good=is_good)
            await asyncio.sleep(0.1)

    async def _report(self, servers: list[LightServer], token: str, context: ssl.SSLContext, *, is_good: bool) -> None:
        at, count = time.time(), 4
        body = json.dumps([{"service": "api", "ok": is_good, "latency": 0.01}] * count).encode()
        serving = [server for server in servers if server.is_up]
        outcome, code, message = UNKNOWN, 0, "no endpoints"
        if serving:
            try:
                await self._random.choice(serving).post("/v1/outcomes", body, token, context)
                outcome, code, message = DONE, 200, ""
            except NO_ANSWER as error:
                message = f"{type(error).__name__}: {error}"[:200]
        details = {"outcomes": count, "failed": 0 if is_good else count}
        self._record.add_act(
            Act(
                at=at,
                answered_at=time.time(),
                act="report",
                kind="Outcome",
                namespace="",
                name="api",
                outcome=outcome,
                code=code,
                message=message,
                details=details,
            )
        )

    async def _hurt(self, store: LightStore, servers: list[LightServer]) -> None:
        """Begin and end the faults in turn."""
        by_name = {server.part: server for server in servers}
        for planned in self._planned:
            await asyncio.sleep(max(0.0, self._began_at + planned.after - time.time()))
            server = by_name.get(planned.parts[0])
            self._record.add_fault(planned.number, planned.kind, planned.parts, BEGAN, **planned.details)
            until = self._began_at + planned.until
            if server is not None:
                await hurt_server(planned.kind, server, until)
            else:
                await hurt_redis(planned.kind, store, planned.parts[0], until)
            self._record.add_fault(planned.number, planned.kind, planned.parts, ENDED, **planned.details)

    async def _watch(self, server: LightServer) -> None:
        """Read the status of a server again and again, until cancelled."""
        while True:
            if server.is_up:
                await self._read_status(server)
            await asyncio.sleep(_POLL_SECONDS)

    async def _follow_decisions(self, servers: list[LightServer]) -> None:
        """Read decision records again and again, until cancelled."""
        while True:
            await self._read_decisions(servers)
            await asyncio.sleep(_POLL_SECONDS)

    async def _read_status(self, server: LightServer) -> None:
        with suppress(*NO_ANSWER, ValueError):
            document = json.loads(await server.get("plain", "/status"))
            self._record.statuses.append(Status(time.time(), server.part, document))

    async def _read_decisions(self, servers: list[LightServer]) -> None:
        """Read the records of the last seconds, page by page."""
        for server in servers:
            before = ""
            while server.is_up:
                query = f"since=20s&limit=500{f'&before={before}' if before else ''}"
                try:
                    page = json.loads(await server.get("decisions", f"/api/v1/decisions?{query}"))
                except (*NO_ANSWER, ValueError):
                    break
                found = [build_review(server.part, record) for record in page["decisions"]]
                news = [review for review in found if review.id not in self._record.reviews]
                self._record.reviews.update((review.id, review) for review in news)
                before = page["next"] or ""
                if not before or not news:
                    break

    async def _read_end(self, servers: list[LightServer]) -> End:
        statuses: dict[str, dict[str, Any]] = {}
        metrics: dict[str, str] = {}
        for server in servers:
            metrics[server.part] = await server.get("plain", "/metrics")
            statuses[server.part] = json.loads(await server.get("plain", "/status"))
        return End(
            at=time.time(),
            rested=True,
            waited_seconds=self._schedule.rest_seconds,
            missing=(),
            workloads=(),
            pods=(),
            statuses=statuses,
            metrics=metrics,
            queue=None,
            explanations={},
            service_statuses=(),
            events=(),
            leases=(),
        )


def _read_redis(part: str, redis: RedisServer) -> RedisSnapshot:
    """Return what a Redis has in the end."""
    with redis.client() as client:
        information = client.info()
        tags = sorted({key.decode().split("{")[1].split("}")[0] for key in client.scan_iter("podgate:{*:pod:*")})
        return RedisSnapshot(
            at=time.time(),
            part=part,
            run_id=information["run_id"],
            role=information["role"],
            memory_bytes=information["used_memory"],
            keys=client.dbsize(),
            charges={tag: _read_charges(client, tag) for tag in tags},
        )
