"""Server counting by Leases on a real API server, with the manifests' permissions."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, installed
from tests.harness.fake_apiserver import until
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
PATIENT = ServerLeaseTiming(duration_seconds=3600, renew_seconds=0.1, request_seconds=60, forget_seconds=0)
IMPATIENT = replace(PATIENT, duration_seconds=1)


def leases(plane: ControlPlane) -> list[str]:
    found = plane.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")["items"]
    return sorted(lease["metadata"]["name"] for lease in found)


async def test_server_leases_count_three_servers_of_which_one_ends_and_one_dies(
    api_alone: ControlPlane, identities: Identities
) -> None:
    troubles: list[str] = []
    reports = WatchReports(lambda: None, troubles.append, lambda _: None)
    counts: dict[str, tuple[int, int]] = {}

    def counter_of(host: str) -> Callable[[int, int], None]:
        return lambda *counted: counts.__setitem__(host, counted)

    with installed(api_alone, identities.files, POLICY, [], servers=0) as found:
        async with await connect(found.kubeconfig()) as client, await connect(found.kubeconfig()) as doomed:
            running: dict[str, asyncio.Task[None]] = {}

            def start(host: str, timing: ServerLeaseTiming) -> None:
                via = doomed if host == "b" else client
                servers = ServerLeases(via, host, is_unique=True, reports=reports, timing=timing)
                servers.on_count = counter_of(host)
                running[host] = asyncio.create_task(servers.run())

            for host in ("a", "b", "c"):
                start(host, PATIENT)
            await until(lambda: counts == {"a": (3, 0), "b": (3, 1), "c": (3, 2)})
            assert await asyncio.to_thread(leases, api_alone) == [f"podgate-server-{host}" for host in "abc"]
            assert troubles == []
            running["a"].cancel()
            await until(lambda: (counts["b"], counts["c"]) == ((2, 0), (2, 1)))
            assert "podgate-server-a" not in await asyncio.to_thread(leases, api_alone), "it has taken its lease along"
            # Dead: it can tell nobody any more.
            await doomed.close()
            running["b"].cancel()
            await asyncio.gather(running["b"], return_exceptions=True)
            # On a starved machine it may consider the third dead too, until that renews.
            start("d", IMPATIENT)
            await until(lambda: counts.get("d") == (2, 1))
            left = ["podgate-server-c", "podgate-server-d"]
            await asyncio.to_thread(api_alone.wait, lambda: leases(api_alone) == left, "the dead one's Lease to go")
            for host in ("c", "d"):
                running[host].cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)


def replicas(found: Installation) -> list[dict[str, Any]]:
    return sorted((server.status()["replicas"] for server in found.servers), key=lambda shown: int(shown["ordinal"]))


def test_servers_of_one_store_are_counted_by_leases_unless_configured(
    api_alone: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    shared = ("--drain", "0s", "--store", a_redis.url)
    with installed(api_alone, identities.files, POLICY, ["shares-one"], servers=2, arguments=shared) as found:
        names = [server.name for server in found.servers]
        both = [{"count": 2, "ordinal": ordinal, "source": "leases"} for ordinal in (0, 1)]
        api_alone.wait(lambda: replicas(found) == both, "two servers to count each other", *names)
        assert {server.metrics()["podgate_replicas"] for server in found.servers} == {2}
        [first, _] = found.servers
        found.stop_server(first)
        alone = [{"count": 1, "ordinal": 0, "source": "leases"}]
        api_alone.wait(lambda: replicas(found) == alone, "the other to be alone", *names)
        configured = found.start_server(*shared, "--replicas", "5", "--ordinal", "4")
        assert configured.status()["replicas"] == {"count": 5, "ordinal": 4, "source": "settings"}
        assert len(leases(api_alone)) == 1
        assert replicas(found)[0] == alone[0], "it counts nobody, and nobody counts it"
    assert leases(api_alone) == []
