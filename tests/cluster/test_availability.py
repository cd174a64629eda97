"""Availability: servers replaced under load, and the API server's outages."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, installed
from tests.cluster.load import PLACEMENT, POD, Load
from tests.cluster.load_balancer import LoadBalancer, LoadBalancers
from tests.redis_servers import RedisServer
from tests.timeouts import HANG_SECONDS

pytest_plugins = ("tests.redis_servers.fixtures",)

CALLERS = 6
PAUSE_SECONDS = 0.05
"""Between two calls of one of them."""
CALLS = int(os.environ.get("PODGATE_TEST_CALLS", "60"))
"""That are answered before and after each change of the servers."""
PRE_STOP_SECONDS = 1.0
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: busy
  match: {{namespaces: ["busy-*"]}}
  failureMode: Closed
  {PLACEMENT}
"""


@asynccontextmanager
async def loaded(plane: ControlPlane, namespace: str) -> AsyncIterator[Load]:
    """Create Pods (dry run: as all are admitted alike) from several callers for as long as the block lasts."""
    load, url = Load(), f"{plane.server}/api/v1/namespaces/{namespace}/pods?dryRun=All"

    async def create(session: aiohttp.ClientSession) -> None:
        while True:
            async with session.post(url, json=POD) as response:
                load.add(response.status, await response.json())
            await asyncio.sleep(PAUSE_SECONDS)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=plane.api.context)) as session:
        callers = [asyncio.create_task(create(session)) for _ in range(CALLERS)]
        try:
            yield load
        finally:
            for caller in callers:
                caller.cancel()
            ended = await asyncio.gather(*callers, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended


async def test_two_servers_are_replaced_in_turn_under_load_and_no_admission_fails(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    store = ("--store", a_redis.url)
    with installed(plane, identities.files, POLICY, ["busy-rollout"], servers=2, arguments=store) as found:
        found.wait_for_calls()
        async with loaded(plane, "busy-rollout") as load:
            for server in list(found.servers):
                await served_more(load)
                await asyncio.to_thread(found.stop_server, server, pre_stop_seconds=PRE_STOP_SECONDS)
                await served_more(load)
                await asyncio.to_thread(found.start_server, *store)
            await served_more(load)
            # Now, for the end of the load cuts what is under way.
            assert all(server.total("podgate_refused_calls_total") == 0 for server in found.servers)
        assert load.failures == {}
        assert load.admitted >= 5 * CALLS
        assert found.servers[0].total("podgate_reviews_total") > 0, "it has taken over from the second"
        for server in list(found.servers):
            found.stop_server(server, kill=True)  # nobody calls any more: a drain would wait for idle connections


async def served_more(load: Load) -> None:
    """Wait until the load has gone on for a while, whatever that takes here."""
    wanted = load.admitted + CALLS
    async with asyncio.timeout(HANG_SECONDS + CALLS):
        while load.admitted < wanted:
            await asyncio.sleep(0.05)
            assert load.failures == {}


FIRST = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaceSelector: {matchLabels: {team: web}}}
  failureMode: Closed
  placement: {nodeSelector: {tier: v0}}
"""


@pytest.fixture
def load_balancer(own_plane: ControlPlane) -> Iterator[LoadBalancer]:
    """Stand in front of the API server: the servers' watches go through it."""
    with LoadBalancers() as load_balancers:
        load_balancer = load_balancers.open()
        load_balancer.targets = [f"127.0.0.1:{own_plane.ports.apiserver}"]
        yield load_balancer


def test_policy_and_matching_continue_through_restarts_of_the_api_server(
    own_plane: ControlPlane, identities: Identities, load_balancer: LoadBalancer
) -> None:
    with installed(own_plane, identities.files, FIRST, ["team-0"], servers=0) as found:
        own_plane.kubectl("label", "namespace", "team-0", "team=web")
        kubeconfig = found.kubeconfig(server=f"https://127.0.0.1:{load_balancer.port}")
        server = found.start_server("--drain", "0s", kubeconfig=kubeconfig)
        own_plane.wait(lambda: tier(found, "team-0") == "v0", "the policy to act", server.name)

        load_balancer.cut()
        followed(found, 1)

        own_plane.stop_component("kube-apiserver")
        assert in_force(found) == hash_of(policy(1))
        own_plane.start_component("kube-apiserver")
        followed(found, 2)

        own_plane.restart("etcd", kill=True)
        assert in_force(found) == hash_of(policy(2))
        own_plane.wait_ready()
        followed(found, 3)

        load_balancer.targets = []
        load_balancer.cut()
        found.apply_policy(policy(4))
        own_plane.wait(lambda: failures(found) >= 1, "the servers to miss the API server", server.name)
        assert tier(found, "team-3") == "v3"
        load_balancer.targets = [f"127.0.0.1:{own_plane.ports.apiserver}"]
        own_plane.wait(lambda: tier(found, "team-3") == "v4", "the policy that was missed", server.name)


def policy(number: int) -> str:
    return FIRST.replace("v0", f"v{number}")


def followed(found: Installation, number: int) -> None:
    """Change the policy, bring a new Namespace, give one away: all of it must act."""
    found.change_policy(policy(number))
    found.plane.create_namespace(f"team-{number}", team="web")
    found.plane.wait(lambda: tier(found, f"team-{number}") == f"v{number}", "the new Namespace to be owned")
    found.plane.kubectl("label", "namespace", f"team-{number - 1}", "team=other", "--overwrite")
    found.plane.wait(lambda: tier(found, f"team-{number - 1}") is None, "the other one to be nobody's")


def tier(found: Installation, namespace: str) -> str | None:
    """Return what a new Pod is told by the policy; None where nobody owns it."""
    status, pod = found.create_pod(namespace, dry_run=True)
    return (
        str(pod["spec"].get("nodeSelector", {}).get("tier"))
        if status == 201 and "nodeSelector" in pod["spec"]
        else None
    )


def in_force(found: Installation) -> str:
    [server] = found.servers
    shown = server.status()["policy"]
    assert shown["errors"] == []
    return str(shown["hash"])


def hash_of(policy: str) -> str:
    return hashlib.sha256(policy.encode()).hexdigest()[:16]


def failures(found: Installation) -> float:
    [server] = found.servers
    return server.total("podgate_kubernetes_watch_failures_total")
