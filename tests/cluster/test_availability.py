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
from tests.cluster.installation import PATIENT, Installation, install_podgate
from tests.cluster.load import PLACEMENT, POD, Load
from tests.cluster.load_balancer import LoadBalancer, LoadBalancers
from tests.redis_servers import RedisServer
from tests.timeouts import HANG_SECONDS

pytest_plugins = ("tests.redis_servers.fixtures",)

CALLERS = 6
SOAK_CALLS = os.environ.get("PODGATE_TEST_CALLS")
CALLS, PAUSE_SECONDS = (int(SOAK_CALLS), 0.02) if SOAK_CALLS else (40, 0.3)
"""Number of admitted Pods before and after each change of the servers; pause between two calls of one caller."""
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
async def load_of_pods(plane: ControlPlane, namespace: str) -> AsyncIterator[Load]:
    """Create Pods, as dry runs, from several callers until the end of the block."""
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
    assert all(isinstance(result, asyncio.CancelledError) for result in ended), ended


async def test_two_servers_are_replaced_in_turn_under_load_and_no_admission_fails(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    store = ("--store", a_redis.url, *PATIENT)
    with install_podgate(plane, identities.files, POLICY, ["busy-rollout"], servers=2, arguments=store) as installation:
        installation.wait_for_calls()
        async with load_of_pods(plane, "busy-rollout") as load:
            for server in list(installation.servers):
                await wait_for_admissions(load)
                await asyncio.to_thread(installation.stop_server, server, pre_stop_seconds=PRE_STOP_SECONDS)
                await wait_for_admissions(load)
                await asyncio.to_thread(installation.start_server, *store)
            await wait_for_admissions(load)
            # Before the end of the load, which cancels calls in flight.
            assert all(server.total("podgate_refused_calls_total") == 0 for server in installation.servers)
        assert load.failures == {}
        assert load.admitted >= 5 * CALLS
        assert installation.servers[0].total("podgate_reviews_total") > 0, "the first new server has reviewed Pods"
        for server in list(installation.servers):
            installation.stop_server(server, kill=True)  # a drain would wait for idle connections


async def wait_for_admissions(load: Load) -> None:
    """Wait until CALLS more Pods are admitted."""
    admitted_after = load.admitted + CALLS
    async with asyncio.timeout(HANG_SECONDS + CALLS):
        while load.admitted < admitted_after:
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
def load_balancer(own_api_alone: ControlPlane) -> Iterator[LoadBalancer]:
    """Return a load balancer in front of the API server for the watches of servers."""
    with LoadBalancers() as load_balancers:
        load_balancer = load_balancers.open()
        load_balancer.targets = [f"127.0.0.1:{own_api_alone.ports.apiserver}"]
        yield load_balancer


def test_policy_and_matching_continue_through_restarts_of_the_api_server(
    own_api_alone: ControlPlane, identities: Identities, load_balancer: LoadBalancer
) -> None:
    with install_podgate(own_api_alone, identities.files, FIRST, ["team-0"], servers=0) as installation:
        own_api_alone.kubectl("label", "namespace", "team-0", "team=web")
        kubeconfig = installation.kubeconfig(server=f"https://127.0.0.1:{load_balancer.port}")
        server = installation.start_server("--drain", "0s", kubeconfig=kubeconfig)
        own_api_alone.wait(lambda: tier(installation, "team-0") == "v0", "the policy to be in force", server.name)

        load_balancer.cut()
        wait_for_watches(installation, 1)

        own_api_alone.stop_component("kube-apiserver")
        assert read_policy_hash(installation) == compute_hash(policy(1))
        own_api_alone.start_component("kube-apiserver")
        wait_for_watches(installation, 2)

        own_api_alone.restart("etcd", kill=True)
        assert read_policy_hash(installation) == compute_hash(policy(2))
        own_api_alone.wait_ready()
        wait_for_watches(installation, 3)

        load_balancer.targets = []
        load_balancer.cut()
        installation.apply_policy(policy(4))
        own_api_alone.wait(lambda: failures(installation) >= 1, "the watches to fail", server.name)
        assert tier(installation, "team-3") == "v3"
        load_balancer.targets = [f"127.0.0.1:{own_api_alone.ports.apiserver}"]
        own_api_alone.wait(lambda: tier(installation, "team-3") == "v4", "the policy of the outage", server.name)


def policy(number: int) -> str:
    return FIRST.replace("v0", f"v{number}")


def wait_for_watches(installation: Installation, number: int) -> None:
    """Change the policy, create a Namespace of the service, and relabel an earlier one: all must take effect."""
    installation.change_policy(policy(number))
    installation.plane.create_namespace(f"team-{number}", team="web")
    installation.plane.wait(
        lambda: tier(installation, f"team-{number}") == f"v{number}", "the new Namespace to match the service"
    )
    installation.plane.kubectl("label", "namespace", f"team-{number - 1}", "team=other", "--overwrite")
    installation.plane.wait(
        lambda: tier(installation, f"team-{number - 1}") is None, "the earlier one to match no service"
    )


def tier(installation: Installation, namespace: str) -> str | None:
    """Return the node selector `tier` of a new Pod, or None if no service owns it."""
    status, pod = installation.create_pod(namespace, dry_run=True)
    return (
        str(pod["spec"].get("nodeSelector", {}).get("tier"))
        if status == 201 and "nodeSelector" in pod["spec"]
        else None
    )


def read_policy_hash(installation: Installation) -> str:
    [server] = installation.servers
    policy_status = server.status()["policy"]
    assert policy_status["errors"] == []
    return str(policy_status["hash"])


def compute_hash(policy: str) -> str:
    return hashlib.sha256(policy.encode()).hexdigest()[:16]


def failures(installation: Installation) -> float:
    [server] = installation.servers
    return server.total("podgate_kubernetes_watch_failures_total")
