"""Two clusters, each with its own API server and Podgate, on one Redis: only `Fleet` counters are shared."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.redis_servers import RedisServer, names

pytest_plugins = ("tests.redis_servers.fixtures",)

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
defaults: {failureMode: Closed}
pools:
- {name: machines, scope: Fleet, windows: [{window: 1h, hard: {pods: 5}}]}
services:
- name: everywhere
  match: {namespaces: [everywhere]}
  quota: {scope: Fleet, windows: [{window: 1h, hard: {pods: 6}}]}
- name: web
  match: {namespaces: [web]}
  pool: machines
  quota: {scope: Fleet, windows: [{window: 1h, hard: {pods: 4}}]}
- name: batch
  match: {namespaces: [batch]}
  pool: machines
- name: here
  match: {namespaces: [here]}
  quota: {windows: [{window: 1h, hard: {pods: 3}}]}
- name: broken
  match: {namespaces: [broken]}
  quota: {windows: [{window: 1h, hard: {pods: 1}}]}
  breaker: {quotaExceeded: {count: 2, within: 10m, countBy: Request}, openFor: 1h}
- name: racing
  match: {namespaces: [racing]}
  quota: {scope: Fleet, windows: [{window: 1h, hard: {pods: 7}}]}
"""
NAMESPACES = ("everywhere", "web", "batch", "here", "broken", "racing")


@dataclass(frozen=True)
class Clusters:
    """Both clusters, and their Redis."""

    east: Installation
    west: Installation
    redis: RedisServer

    def keys(self, owner: str) -> dict[str, bytes]:
        """Return all keys of one cluster, or of the fleet, with their dumped values."""
        with self.redis.client() as client:
            redis_keys = [bytes(key) for key in client.scan_iter(f"podgate:*:v1:{owner}:*", count=1000)]
            return {key.decode(): client.dump(key) for key in redis_keys}


@pytest.fixture(scope="module")
def clusters(
    api_alone: ControlPlane,
    another_api_alone: ControlPlane,
    identities: Identities,
    shared_redis: Callable[[str], RedisServer],
) -> Iterator[Clusters]:
    redis = shared_redis(names()[0])
    with ExitStack() as stack:

        def install(plane: ControlPlane, name: str) -> Installation:
            arguments = ("--drain", "0s", "--store", redis.url, "--store-deadline", "30s", "--cluster", name)
            installation = stack.enter_context(
                install_podgate(plane, identities.files, POLICY, NAMESPACES, arguments=arguments)
            )
            installation.wait_for_calls()
            return installation

        yield Clusters(install(api_alone, "east"), install(another_api_alone, "west"), redis)


def create(cluster: Installation, namespace: str) -> str:
    """Create a Pod; return the denial, or "" if it was admitted."""
    status, answer = cluster.create_pod(namespace)
    if status == 201:
        return ""
    assert status in {429, 503}, answer
    return str(answer["message"])


def read_used(cluster: Installation, service: str) -> list[tuple[str, str]]:
    """Return used and hard of the service's windows in the status of the cluster's server."""
    [server] = cluster.servers
    [service_status] = [
        service_status for service_status in server.status()["services"] if service_status["name"] == service
    ]
    return [(str(window["used"]), str(window["hard"])) for window in service_status["windows"]]


def breaker(cluster: Installation, service: str) -> dict[str, Any]:
    [server] = cluster.servers
    [service_status] = [
        service_status for service_status in server.status()["services"] if service_status["name"] == service
    ]
    breaker_status: dict[str, Any] = service_status["breaker"]
    return breaker_status


def test_fleet_service_counts_the_pods_of_both_clusters(clusters: Clusters) -> None:
    east, west = clusters.east, clusters.west
    assert [create(cluster, "everywhere") for cluster in (east, west) * 3] == [""] * 6
    for cluster in (east, west):
        assert "QuotaExceeded: service everywhere: pods in 1h: hard 6, used 6, asked 1; could pass from " in create(
            cluster, "everywhere"
        )
        assert read_used(cluster, "everywhere") == [("6", "6")]
        assert len(cluster.pods("everywhere")) == 3


def test_fleet_pool_counts_the_pods_of_both_clusters(clusters: Clusters) -> None:
    east, west = clusters.east, clusters.west
    assert [create(east, "web"), create(east, "web"), create(west, "web")] == [""] * 3
    assert [create(west, "batch"), create(east, "batch")] == [""] * 2
    for cluster, service in ((east, "web"), (east, "batch"), (west, "web"), (west, "batch")):
        message = create(cluster, service)
        assert f"QuotaExceeded: service {service}: pool machines: pods in 1h: hard 5, used 5, asked 1" in message
    assert read_used(east, "web") == read_used(west, "web") == [("3", "4")], "Pods denied by the pool are not charged"


def test_services_without_fleet_scope_count_per_cluster(clusters: Clusters) -> None:
    east, west = clusters.east, clusters.west
    assert [create(east, "here") for _ in range(3)] == [""] * 3
    assert "QuotaExceeded: service here: pods in 1h: hard 3, used 3, asked 1" in create(east, "here")
    assert read_used(west, "here") == [("0", "3")]
    assert create(west, "here") == ""
    assert read_used(east, "here") == [("3", "3")]
    assert read_used(west, "here") == [("1", "3")]


def test_breaker_opened_in_one_cluster_stays_closed_in_the_other(clusters: Clusters) -> None:
    east, west = clusters.east, clusters.west
    assert create(east, "broken") == ""
    assert all("QuotaExceeded" in create(east, "broken") for _ in range(2))
    east.plane.wait(lambda: breaker(east, "broken")["state"] == "OPEN", "the breaker to open", "kube-apiserver")
    assert "BreakerOpen: service broken: the breaker is open until " in create(east, "broken")
    assert breaker(west, "broken")["state"] == "CLOSED"
    assert create(west, "broken") == ""
    assert "QuotaExceeded: service broken" in create(west, "broken")
    assert breaker(west, "broken")["state"] == "CLOSED"


def test_clusters_do_not_change_the_keys_of_each_other(clusters: Clusters) -> None:
    east, west = clusters.east, clusters.west
    keys_before = clusters.keys("west")
    uids = set()
    for namespace in NAMESPACES[:-1]:
        create(east, namespace)
        uids |= {pod["metadata"]["uid"] for pod in east.pods(namespace)}
    assert clusters.keys("west") == keys_before
    keys_before = clusters.keys("east")
    for namespace in NAMESPACES[:-1]:
        create(west, namespace)
    assert clusters.keys("east") == keys_before
    recorded_uids = {key.rpartition(":")[2] for key in keys_before if ":pod:" in key}
    assert recorded_uids == uids, "exactly one record for each of its own Pods"


def test_every_redis_key_belongs_to_one_cluster_or_the_fleet(clusters: Clusters) -> None:
    create(clusters.east, "everywhere")
    with clusters.redis.client() as client:
        all_keys = {bytes(key).decode() for key in client.scan_iter("*", count=1000)}
    owned = {owner: set(clusters.keys(owner)) for owner in ("east", "west", "fleet")}
    untagged = {key for key in all_keys if key.startswith(("podgate:v1:east:", "podgate:v1:west:"))}
    assert {key.split(":")[3] for key in untagged} == {"decisions", "policy"}
    assert all_keys - untagged == set.union(*owned.values())
    assert {key.split(":")[4] for key in owned["fleet"]} == {"ring", "pool"}
    assert not any(":ring:everywhere" in key or ":pool:" in key for key in owned["east"] | owned["west"])


def test_race_between_clusters_does_not_exceed_the_limit(clusters: Clusters) -> None:
    with ThreadPoolExecutor(8) as pool:
        messages = list(pool.map(lambda cluster: create(cluster, "racing"), [clusters.east, clusters.west] * 12))
    assert messages.count("") == 7
    assert all("QuotaExceeded: service racing: pods in 1h: hard 7, used " in message for message in messages if message)
    assert sum(len(cluster.pods("racing")) for cluster in (clusters.east, clusters.west)) == 7
