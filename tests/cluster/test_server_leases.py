"""Server counting by Leases on a real API server, with the manifests' permissions."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.harness.fake_apiserver import wait_until
from tests.redis_servers import RedisServer
from webhook.adapters.kubernetes import ServerLeases, ServerLeaseTiming, connect
from webhook.ports import WatchReports

pytest_plugins = ("tests.redis_servers.fixtures",)

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: counted
  match: {namespaces: ["shares-*"]}
  quota: {windows: [{window: 1h, hard: {pods: 100}}]}
"""
SLOW_EXPIRY = ServerLeaseTiming(duration_seconds=3600, renew_seconds=0.1, request_seconds=60, forget_seconds=0)
QUICK_EXPIRY = replace(SLOW_EXPIRY, duration_seconds=1)


@pytest.fixture(autouse=True)
def no_leases(api_alone: ControlPlane) -> None:
    """Delete the Leases of servers that earlier tests have killed: they would be counted."""
    api_alone.delete(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")


def leases(plane: ControlPlane) -> list[str]:
    leases_found = plane.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")["items"]
    return sorted(lease["metadata"]["name"] for lease in leases_found)


async def test_server_leases_count_three_servers_of_which_one_ends_and_one_dies(
    api_alone: ControlPlane, identities: Identities
) -> None:
    errors: list[str] = []
    reports = WatchReports(lambda: None, errors.append, lambda _: None)
    counts: dict[str, tuple[int, int]] = {}

    def make_counter(host: str) -> Callable[[int, int], None]:
        return lambda *counted: counts.__setitem__(host, counted)

    with install_podgate(api_alone, identities.files, POLICY, [], servers=0) as installation:
        async with (
            await connect(installation.kubeconfig()) as client,
            await connect(installation.kubeconfig()) as crashing_client,
        ):
            running: dict[str, asyncio.Task[None]] = {}

            def start(host: str, timing: ServerLeaseTiming) -> None:
                server_client = crashing_client if host == "b" else client
                servers = ServerLeases(server_client, host, is_unique=True, reports=reports, timing=timing)
                servers.on_count = make_counter(host)
                running[host] = asyncio.create_task(servers.run())

            for host in ("a", "b", "c"):
                start(host, SLOW_EXPIRY)
            await wait_until(lambda: counts == {"a": (3, 0), "b": (3, 1), "c": (3, 2)})
            assert await asyncio.to_thread(leases, api_alone) == [f"podgate-server-{host}" for host in "abc"]
            assert errors == []
            running["a"].cancel()
            await wait_until(lambda: (counts["b"], counts["c"]) == ((2, 0), (2, 1)))
            assert "podgate-server-a" not in await asyncio.to_thread(leases, api_alone), "it has deleted its Lease"
            # A crash: it cannot delete its Lease.
            await crashing_client.close()
            running["b"].cancel()
            await asyncio.gather(running["b"], return_exceptions=True)
            # On a slow machine it may count the third server as dead too, until that one renews its Lease.
            start("d", QUICK_EXPIRY)
            await wait_until(lambda: counts.get("d") == (2, 1))
            remaining = ["podgate-server-c", "podgate-server-d"]
            await asyncio.to_thread(
                api_alone.wait, lambda: leases(api_alone) == remaining, "the dead server's Lease to be deleted"
            )
            for host in ("c", "d"):
                running[host].cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)


def replicas(installation: Installation) -> list[dict[str, Any]]:
    return sorted(
        (server.status()["replicas"] for server in installation.servers), key=lambda document: int(document["ordinal"])
    )


def test_servers_of_one_store_are_counted_by_leases_unless_configured(
    api_alone: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    shared = ("--drain", "0s", "--store", a_redis.url)
    with install_podgate(
        api_alone, identities.files, POLICY, ["shares-one"], servers=2, arguments=shared
    ) as installation:
        names = [server.name for server in installation.servers]
        two_servers = [{"count": 2, "ordinal": ordinal, "source": "leases"} for ordinal in (0, 1)]
        api_alone.wait(lambda: replicas(installation) == two_servers, "two servers to count each other", *names)
        assert {server.metrics()["podgate_replicas"] for server in installation.servers} == {2}
        [first, _] = installation.servers
        installation.stop_server(first)
        only_one = [{"count": 1, "ordinal": 0, "source": "leases"}]
        api_alone.wait(lambda: replicas(installation) == only_one, "the other server to count only itself", *names)
        configured = installation.start_server(*shared, "--replicas", "5", "--ordinal", "4")
        assert configured.status()["replicas"] == {"count": 5, "ordinal": 4, "source": "settings"}
        assert len(leases(api_alone)) == 1
        assert replicas(installation)[0] == only_one[0], "it has no Lease, so it is not counted"
    assert leases(api_alone) == []
