"""ServiceStatus objects on a real API server: created, updated with their breaker, deleted with their service.

Their writer has only the rights of the manifests.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import manifests
from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities

pytest_plugins = ("tests.redis_servers.fixtures",)

NAME = "servicestatuses.podgate.io"
CRD = str(manifests.FOLDER / "base/05-servicestatus.yaml")
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: tripped
  match: {namespaces: [statuses-tripped-STORE]}
  quota: {windows: [{window: 1h, hard: {pods: 1}}]}
  breaker: {quotaExceeded: {count: 2, within: 1m, countBy: Request}, openFor: 20s}
- name: idle
  match: {namespaces: [statuses-idle-STORE]}
  modes: {breaker: Audit}
  quota: {windows: [{window: 1h, hard: {pods: 1}}]}
  breaker: {quotaExceeded: {}}
- {name: plain, match: {namespaces: [statuses-plain-STORE]}}
- name: divided
  match: {namespaces: [statuses-divided-STORE]}
  placement:
    shares:
      variants:
      - {name: spot, weight: 1, nodeSelector: {kind: spot}}
      - {name: on-demand, weight: 1, nodeSelector: {kind: on-demand}}
"""
WITHOUT_IDLE = POLICY[: POLICY.index("- name: idle")] + POLICY[POLICY.index("- {name: plain") :]


@pytest.fixture(scope="module")
def running(api_alone: ControlPlane, identities: Identities, store: str, store_url: str) -> Iterator[ControllerFixture]:
    """Install Podgate without the CustomResourceDefinition."""
    namespaces = [f"statuses-{name}-{store}" for name in ("tripped", "idle", "plain", "divided")]
    with controller_fixture(api_alone, identities, POLICY.replace("STORE", store), namespaces, store_url) as fixture:
        yield fixture
    api_alone.kubectl("delete", "-f", CRD, "--ignore-not-found")


def statuses(running: ControllerFixture) -> dict[str, dict[str, Any]]:
    status, response = running.plane.api.request("GET", "/apis/podgate.io/v1alpha1/servicestatuses")
    assert status in {200, 404, 429}, response  # 429: while a definition is new
    return {item["metadata"]["name"]: item for item in response["items"]} if status == 200 else {}


def breaker(running: ControllerFixture, service: str) -> dict[str, Any]:
    breaker_status: dict[str, Any] = statuses(running).get(service, {}).get("status", {}).get("breaker", {})
    return breaker_status


def wait_all(running: ControllerFixture, *services: str) -> None:
    def have_all() -> bool:
        objects = statuses(running)
        return set(objects) == set(services) and all("status" in value for value in objects.values())

    running.wait(have_all, f"the objects of {', '.join(services)} and no others")


def read_table(running: ControllerFixture, *options: str) -> list[str]:
    return running.plane.kubectl("get", NAME, *options).stdout.splitlines()


def test_missing_definition_is_reported_once_and_stops_nothing_else(running: ControllerFixture, store: str) -> None:
    [writer] = running.controllers
    message = f"{NAME} is not installed: kubectl apply -f manifests/base/05-servicestatus.yaml"
    running.wait(lambda: message in running.installation.log(writer), "the message to be logged")
    assert running.installation.create_pod(f"statuses-plain-{store}")[0] == 201
    running.plane.kubectl("apply", "-f", CRD)
    wait_all(running, "tripped", "idle", "plain", "divided")
    assert running.installation.log(writer).count(message) == 1


def test_each_service_has_an_object_with_its_status(running: ControllerFixture) -> None:
    objects = statuses(running)
    assert {value["metadata"]["labels"]["app.kubernetes.io/managed-by"] for value in objects.values()} == {"podgate"}
    assert objects["plain"]["status"] == {}
    probes = {"needed": 3, "leased": 0, "succeeded": 0, "early": 0}
    assert objects["idle"]["status"]["breaker"] == {
        "state": "CLOSED",
        "mode": "Audit",
        "generation": 0,
        "probes": probes,
    }
    headings, *rows = read_table(running)
    assert headings.split("  ")[0] == "NAME"
    assert headings.split() == ["NAME", "STATE", "SINCE", "TRIGGERED", "AT", "RECOVERS", "AT", "MODE"]
    assert [row.split() for row in rows] == [
        ["divided"],
        ["idle", "CLOSED", "Audit"],
        ["plain"],
        ["tripped", "CLOSED", "Enforce"],
    ]


def test_variants_of_a_service_have_their_breakers(running: ControllerFixture) -> None:
    assert statuses(running)["divided"]["status"] == {"variants": [{"name": "spot", "state": "CLOSED"}]}


def test_object_changes_only_with_its_breaker(running: ControllerFixture, store: str) -> None:
    versions_before = {name: status["metadata"]["resourceVersion"] for name, status in statuses(running).items()}
    status_codes = [running.installation.create_pod(f"statuses-tripped-{store}")[0] for _ in range(4)]
    assert status_codes == [201, 429, 429, 503]
    running.wait(lambda: breaker(running, "tripped")["state"] == "OPEN", "the trip to be shown")
    opened = breaker(running, "tripped")
    assert (opened["generation"], opened["since"], opened["trippedBy"]) == (1, opened["trippedAt"], opened["reason"])
    assert opened["reason"] == "quotaExceeded: 2 requests refused within 60s"
    assert opened["openUntil"] > opened["since"]
    [row] = [line for line in read_table(running, "-o", "wide") if line.startswith("tripped")]
    name, state, _, tripped_at, recovers_at, mode, reason = row.split(maxsplit=6)
    assert (name, state, mode, reason) == ("tripped", "OPEN", "Enforce", opened["reason"])
    assert (tripped_at, recovers_at) == (opened["trippedAt"], opened["openUntil"])
    running.wait(lambda: breaker(running, "tripped")["state"] == "HALF_OPEN", "the breaker to be half-open")
    after = breaker(running, "tripped")
    assert "openUntil" not in after
    assert (after["trippedAt"], after["trippedBy"]) == (opened["trippedAt"], opened["trippedBy"])
    versions_after = {name: status["metadata"]["resourceVersion"] for name, status in statuses(running).items()}
    assert [name for name in versions_after if versions_after[name] != versions_before[name]] == ["tripped"]


def test_short_name_is_served(running: ControllerFixture) -> None:
    assert "HALF_OPEN" in running.plane.kubectl("get", "svcstatus", "tripped").stdout


def test_deleted_object_is_recreated(running: ControllerFixture) -> None:
    deleted = statuses(running)["tripped"]
    running.plane.kubectl("delete", NAME, "tripped")
    running.wait(lambda: breaker(running, "tripped"), "the object to be recreated")
    recreated = statuses(running)["tripped"]
    assert recreated["metadata"]["uid"] != deleted["metadata"]["uid"]
    assert recreated["status"] == deleted["status"]


def test_object_of_a_removed_service_is_deleted_and_foreign_objects_stay(
    running: ControllerFixture, store: str
) -> None:
    running.plane.apply({"apiVersion": "podgate.io/v1alpha1", "kind": "ServiceStatus", "metadata": {"name": "theirs"}})
    running.installation.change_policy(WITHOUT_IDLE.replace("STORE", store))
    running.wait(lambda: "idle" not in statuses(running), "the object to be deleted")
    assert set(statuses(running)) == {"tripped", "plain", "divided", "theirs"}


def test_deleted_definition_stops_nothing_else_and_may_be_recreated(running: ControllerFixture, store: str) -> None:
    running.plane.kubectl("delete", "-f", CRD)
    assert running.installation.create_pod(f"statuses-plain-{store}")[0] == 201
    running.plane.kubectl("apply", "-f", CRD)
    wait_all(running, "tripped", "plain", "divided")
    assert running.has_listed_pods()
