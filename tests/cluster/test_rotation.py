"""Rotation of certificates, CAs, tokens and keys under load with killed controllers: no admission fails."""

import asyncio
import itertools
import json
import os
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import aiohttp
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from certs.ca_generations import find_issuer
from certs.cluster.ca_controller import SERVING
from tests.cluster.controller_fixture import leads
from tests.cluster.identities import Identities
from tests.cluster.load import PLACEMENT, POD, Load
from tests.cluster.rotation_fixture import CredentialLifetimes, RotationFixture, run_rotating_cluster
from tests.cluster.server import Server
from tests.redis_servers import RedisServer

pytest_plugins = ("tests.redis_servers.fixtures",)

SOAKS = os.environ.get("PODGATE_TEST_ROTATION") == "soak"
LOAD_SECONDS = 960 if SOAKS else 120
LIFETIMES = (
    CredentialLifetimes(serving_ca="2m", serving="1m", client_ca="1h", client="15m", token="10m", token_key="10m")
    if SOAKS
    else CredentialLifetimes(serving_ca="90s", serving="45s", client_ca="1h", client="15m", token="2m", token_key="2m")
)
DRY_RUNS, REAL_PODS = (50, 1) if SOAKS else (2, 1)
"""Pods per second."""
_OBSERVED_EVERY = 3
"""Rounds of half a second: credentials live for 45 s at least."""
NAMESPACE = "rotating"
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: rotating
  match: {{namespaces: [rotating]}}
  failureMode: Closed
  {PLACEMENT}
  quota: {{windows: [{{window: 1h, hard: {{pods: 1000000}}}}]}}
"""


@asynccontextmanager
async def load_of_pods(rotation: RotationFixture) -> AsyncIterator[tuple[Load, Load]]:
    """Create Pods at constant rates, dry runs and real ones, until the end of the block; wait for all responses."""
    url = f"{rotation.plane.server}/api/v1/namespaces/{NAMESPACE}/pods"
    pending: set[asyncio.Task[None]] = set()
    dry_runs, real = Load(), Load()

    async def create(session: aiohttp.ClientSession, load: Load) -> None:
        async with session.post(url, params={"dryRun": "All"} if load is dry_runs else {}, json=POD) as response:
            load.add(response.status, await response.json())

    async def create_periodically(session: aiohttp.ClientSession, per_second: int, load: Load) -> None:
        at = time.monotonic()
        while True:
            at += 1 / per_second
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            task = asyncio.create_task(create(session, load))
            pending.add(task)
            task.add_done_callback(pending.discard)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=rotation.plane.api.context)) as session:
        load_tasks = [
            asyncio.create_task(create_periodically(session, DRY_RUNS, dry_runs)),
            asyncio.create_task(create_periodically(session, REAL_PODS, real)),
        ]
        try:
            yield dry_runs, real
        finally:
            for load_task in load_tasks:
                load_task.cancel()
            ended = await asyncio.gather(*load_tasks, return_exceptions=True)
            await asyncio.gather(*pending)
    assert all(isinstance(result, asyncio.CancelledError) for result in ended), ended


@dataclass
class ForeignCallers:
    """Results of callers with a foreign certificate, and without one."""

    identities: Identities
    answers: Counter[str] = field(default_factory=Counter)

    @cached_property
    def contexts(self) -> dict[str, ssl.SSLContext]:
        files = self.identities.files
        # The certificate of the first is of a foreign CA.
        contexts = {"foreign": files.pki.context(files.caller), "bare": ssl.create_default_context()}
        for context in contexts.values():
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return contexts

    async def call(self, server: Server) -> None:
        for name, context in self.contexts.items():
            self.answers[f"{name}: {await self._answer(server, context)}"] += 1

    async def _answer(self, server: Server, context: ssl.SSLContext) -> str:
        token = self.identities.files.signer.token()
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.post(
                    f"https://{server.admission}/mutate",
                    data=b"{}",
                    headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
                    ssl=context,
                ) as response,
            ):
                return str(response.status)
        except (aiohttp.ClientError, OSError):
            return "no connection"


@dataclass
class ObservedCredentials:
    """All credentials that were in use at some time, which show the rotations."""

    rotation: RotationFixture
    serving: set[int] = field(default_factory=set)
    client: set[int] = field(default_factory=set)
    tokens: set[bytes] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    authorities: set[bytes] = field(default_factory=set)
    dropped: set[bytes] = field(default_factory=set)

    def __str__(self) -> str:
        return ", ".join(f"{len(value)} {name}" for name, value in vars(self).items() if isinstance(value, set))

    def observe(self) -> None:
        leaf = self.rotation.leaf(SERVING)
        assert leaf is not None
        self.serving.add(leaf.serial_number)
        self.client.add(
            x509.load_pem_x509_certificate((self.rotation.node / "kube-apiserver.pem").read_bytes()).serial_number
        )
        self.tokens.add((self.rotation.node / "token").read_bytes())
        jwks = json.loads((self.rotation.tls.parent / "jwks" / "jwks.json").read_bytes())
        self.keys |= {key["kid"] for key in jwks["keys"]}
        current = {
            certificate.fingerprint(hashes.SHA256())
            for trusted in self.rotation.bundles()
            for certificate in x509.load_pem_x509_certificates(trusted)
        }
        self.dropped |= self.authorities - current
        self.authorities |= current


async def test_rotation_of_all_credentials_under_load_fails_no_admission(
    identities: Identities, tmp_path: Path, a_redis: RedisServer
) -> None:
    with run_rotating_cluster(identities, tmp_path, a_redis.url, POLICY, NAMESPACE, LIFETIMES) as rotation:
        await asyncio.to_thread(rotation.installation.wait_for_calls)
        observed, foreign_callers = ObservedCredentials(rotation), ForeignCallers(identities)
        async with load_of_pods(rotation) as (dry_runs, real):
            await run_load_with_kills(rotation, observed, foreign_callers)
        reviews = sum(
            server.total("podgate_reviews_total", 'half="validate"') for server in rotation.installation.servers
        )
        failed_calls = [
            line for line in rotation.plane.log("kube-apiserver", 100_000).splitlines() if "calling webhook" in line
        ]
        refused = {
            name: value
            for server in rotation.installation.servers
            for name, value in server.metrics().items()
            if "refused" in name and value
        }
    print(f"\n{dry_runs.admitted} dry runs, {real.admitted} Pods; {foreign_callers.answers}; refused {refused}")  # noqa: T201  a measurement
    print(f"in use at some time: {observed}")  # noqa: T201  as above
    assert dry_runs.failures + real.failures == {}, "\n".join(failed_calls)
    assert dry_runs.admitted >= DRY_RUNS * LOAD_SECONDS * 0.9
    assert real.admitted >= REAL_PODS * LOAD_SECONDS * 0.9
    assert reviews >= dry_runs.admitted + real.admitted, "every Pod was reviewed"
    assert set(foreign_callers.answers) <= {"foreign: no connection", "bare: no connection"}
    assert len(observed.serving) >= LOAD_SECONDS // 60
    assert len(observed.authorities) >= 2
    assert observed.dropped
    assert len(observed.tokens) >= LOAD_SECONDS // 90
    assert len(observed.keys) >= 2
    assert len(observed.client) >= (2 if SOAKS else 1)


def is_signed_by(rotation: RotationFixture, which: int) -> bool:
    """Whether several CAs are trusted, and the first or last of them has signed the serving certificate."""
    line, leaf = rotation.generations(), rotation.leaf(SERVING)
    assert leaf is not None
    return (
        len(line) > 1 and find_issuer(leaf, [generation.certificate for generation in line]) == line[which].certificate
    )


def kill_leader_at(rotation: RotationFixture, which: int) -> bool:
    """Kill the leader if a rotation is at this point; return whether it was."""
    if not is_signed_by(rotation, which):
        return False
    leader = next((controller for controller in rotation.installation.controllers if leads(controller)), None)
    if leader is None:
        return False
    rotation.installation.stop_controller(leader, kill=True)
    rotation.start_controller()
    return True


async def run_load_with_kills(
    rotation: RotationFixture, observed: ObservedCredentials, foreign_callers: ForeignCallers
) -> None:
    """Observe credentials during the load; kill the leader before a new CA signs, and before the old one is removed."""
    load_end, kill_points = time.monotonic() + LOAD_SECONDS, [0, -1]
    rounds = itertools.count()
    while time.monotonic() < load_end:
        if next(rounds) % _OBSERVED_EVERY == 0:
            await asyncio.to_thread(observed.observe)
            for server in rotation.installation.servers:
                await foreign_callers.call(server)
        for which in kill_points[:1]:
            if await asyncio.to_thread(kill_leader_at, rotation, which):
                kill_points.remove(which)
        await asyncio.sleep(0.5)
    assert not kill_points, "the leader was not killed at both points of a rotation"
