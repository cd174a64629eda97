"""Certificates, CAs, tokens and their keys rotate under load while controllers are killed: no admission fails."""

import asyncio
import json
import os
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from certs.ca_generations import issuer_of
from certs.cluster.ca_controller import SERVING
from tests.cluster.controller_fixture import leads
from tests.cluster.identities import Identities
from tests.cluster.load import PLACEMENT, POD, Load
from tests.cluster.rotation_fixture import CredentialLifetimes, RotationFixture, rotating_cluster
from tests.cluster.server import Server
from tests.redis_servers import RedisServer

pytest_plugins = ("tests.redis_servers.fixtures",)

SOAKS = os.environ.get("PODGATE_TEST_ROTATION") == "soak"
LOAD_SECONDS = 900 if SOAKS else 120
LIVES = (
    CredentialLifetimes(serving_ca="2m", serving="1m", client_ca="1h", client="12m", token="10m", token_key="10m")
    if SOAKS
    else CredentialLifetimes(serving_ca="90s", serving="45s", client_ca="1h", client="12m", token="2m", token_key="2m")
)
DRY_RUNS, REAL = (50, 1) if SOAKS else (10, 1)
"""Pods a second."""
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
async def loaded(on: RotationFixture) -> AsyncIterator[tuple[Load, Load]]:
    """Create so many Pods a second, dry runs and others, while the block lasts; all that were begun are answered."""
    url = f"{on.plane.server}/api/v1/namespaces/{NAMESPACE}/pods"
    under_way: set[asyncio.Task[None]] = set()
    dry_runs, real = Load(), Load()

    async def create(session: aiohttp.ClientSession, load: Load) -> None:
        async with session.post(url, params={"dryRun": "All"} if load is dry_runs else {}, json=POD) as response:
            load.add(response.status, await response.json())

    async def blow(session: aiohttp.ClientSession, a_second: int, load: Load) -> None:
        at = time.monotonic()
        while True:
            at += 1 / a_second
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            task = asyncio.create_task(create(session, load))
            under_way.add(task)
            task.add_done_callback(under_way.discard)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=on.plane.api.context)) as session:
        blowing = [
            asyncio.create_task(blow(session, DRY_RUNS, dry_runs)),
            asyncio.create_task(blow(session, REAL, real)),
        ]
        try:
            yield dry_runs, real
        finally:
            for one in blowing:
                one.cancel()
            ended = await asyncio.gather(*blowing, return_exceptions=True)
            await asyncio.gather(*under_way)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended


@dataclass
class Strangers:
    """Who belongs to nobody here and calls all the same: what they were answered."""

    identities: Identities
    answers: Counter[str] = field(default_factory=Counter)

    async def call(self, server: Server) -> None:
        files = self.identities.files
        foreign = files.pki.context(files.caller)  # of a CA that signs nobody's certificates here
        foreign.check_hostname, foreign.verify_mode = False, ssl.CERT_NONE
        bare = ssl.create_default_context()
        bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE
        for name, context in (("foreign", foreign), ("bare", bare)):
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
class Sightings:
    """What was in use at any time: by it one sees what has rotated."""

    on: RotationFixture
    serving: set[int] = field(default_factory=set)
    client: set[int] = field(default_factory=set)
    tokens: set[bytes] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    authorities: set[bytes] = field(default_factory=set)
    dropped: set[bytes] = field(default_factory=set)

    def __str__(self) -> str:
        return ", ".join(f"{len(value)} {name}" for name, value in vars(self).items() if isinstance(value, set))

    def look(self) -> None:
        leaf = self.on.leaf(SERVING)
        assert leaf is not None
        self.serving.add(leaf.serial_number)
        self.client.add(
            x509.load_pem_x509_certificate((self.on.node / "kube-apiserver.pem").read_bytes()).serial_number
        )
        self.tokens.add((self.on.node / "token").read_bytes())
        jwks = json.loads((self.on.tls.parent / "jwks" / "jwks.json").read_bytes())
        self.keys |= {key["kid"] for key in jwks["keys"]}
        there = {
            one.fingerprint(hashes.SHA256())
            for trusted in self.on.bundles()
            for one in x509.load_pem_x509_certificates(trusted)
        }
        self.dropped |= self.authorities - there
        self.authorities |= there


async def test_rotation_of_all_credentials_under_load_fails_no_admission(
    identities: Identities, tmp_path: Path, a_redis: RedisServer
) -> None:
    with rotating_cluster(identities, tmp_path, a_redis.url, POLICY, NAMESPACE, LIVES) as on:
        await asyncio.to_thread(on.installation.wait_for_calls)
        seen, strangers = Sightings(on), Strangers(identities)
        async with loaded(on) as (dry_runs, real):
            await rage(on, seen, strangers)
        reviews = sum(one.total("podgate_reviews_total", 'half="validate"') for one in on.installation.servers)
        why = [line for line in on.plane.log("kube-apiserver", 100_000).splitlines() if "calling webhook" in line]
        refused = {
            name: value
            for one in on.installation.servers
            for name, value in one.metrics().items()
            if "refused" in name and value
        }
    print(f"\n{dry_runs.admitted} dry runs, {real.admitted} Pods; {strangers.answers}; refused {refused}")  # noqa: T201  a measurement is for people
    print(f"in use at some time: {seen}")  # noqa: T201  as above
    assert dry_runs.failures + real.failures == {}, "\n".join(why)
    assert dry_runs.admitted >= DRY_RUNS * LOAD_SECONDS * 0.9
    assert real.admitted >= REAL * LOAD_SECONDS * 0.9
    assert reviews >= dry_runs.admitted + real.admitted, "every one was judged"
    assert set(strangers.answers) <= {"foreign: no connection", "bare: no connection"}
    assert len(seen.serving) >= LOAD_SECONDS // 60
    assert len(seen.authorities) >= 2
    assert seen.dropped
    assert len(seen.tokens) >= LOAD_SECONDS // 90
    assert len(seen.keys) >= 2
    assert len(seen.client) >= (2 if SOAKS else 1)


def signs(on: RotationFixture, which: int) -> bool:
    """Whether two CAs are trusted, and the leaf is the first one's, or the last one's."""
    line, leaf = on.generations(), on.leaf(SERVING)
    assert leaf is not None
    return len(line) > 1 and issuer_of(leaf, [one.certificate for one in line]) == line[which].certificate


def killed(on: RotationFixture, which: int) -> bool:
    """Kill who leads if a rotation is under way and that far; whether it was."""
    leader = next((one for one in on.installation.controllers if leads(one)), None)
    if leader is None or not signs(on, which):
        return False
    on.installation.stop_controller(leader, kill=True)
    on.start_controller()
    return True


async def rage(on: RotationFixture, seen: Sightings, strangers: Strangers) -> None:
    """Look on while the load is to last; kill who leads twice: before a new CA signs, and before the old one goes."""
    ends, moments = time.monotonic() + LOAD_SECONDS, [0, -1]
    while time.monotonic() < ends:
        await asyncio.to_thread(seen.look)
        for server in on.installation.servers:
            await strangers.call(server)
        for which in moments[:1]:
            if await asyncio.to_thread(killed, on, which):
                moments.remove(which)
        await asyncio.sleep(0.25)
    assert not moments, "nobody was killed in the middle of a rotation twice"
