"""Guarantees in a pool on a real control plane: Deployments of two services that share limits in Redis."""

import json
from typing import Any

from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import install_podgate
from tests.redis_servers import RedisServer

pytest_plugins = ("tests.redis_servers.fixtures",)

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
pools: [{name: prod, windows: [{window: 1h, hard: {pods: 5}}]}]
services:
- name: pay
  match: {namespaces: [guaranteed-pay]}
  failureMode: Closed
  pool: prod
  guaranteed: {windows: [{window: 1h, hard: {pods: 3}}]}
- name: tools
  match: {namespaces: [guaranteed-tools]}
  failureMode: Closed
  pool: prod
"""

LIVE_POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
pools: [{name: prod, standing: {hard: {pods: 5, requests.cpu: "1"}}}]
services:
- name: pay
  match: {namespaces: [live-pay]}
  failureMode: Closed
  pool: prod
  guaranteed: {standing: {hard: {pods: 3, requests.cpu: 300m}}}
- name: tools
  match: {namespaces: [live-tools]}
  failureMode: Closed
  pool: prod
"""
PAY, TOOLS = "live-pay", "live-tools"


def test_what_is_guaranteed_is_there_after_others_have_taken_all_they_can(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    pay, tools = "guaranteed-pay", "guaranteed-tools"
    arguments = ("--drain", "0s", "--store", a_redis.url, "--store-deadline", "30s")
    with install_podgate(plane, identities.files, POLICY, [pay, tools], servers=2, arguments=arguments) as installation:
        installation.wait_for_calls()
        plane.kubectl("create", "deployment", "many", "--image=i", "--replicas=5", "-n", tools)
        plane.wait(lambda: len(installation.pods(tools)) == 2, "what all share")
        status, answer = installation.create_pod(tools)
        assert status == 429, answer
        assert "pool prod: pods in 1h: hard 5, used 2, asked 1, kept for others 3" in answer["message"]
        plane.kubectl("create", "deployment", "pay", "--image=i", "--replicas=4", "-n", pay)
        plane.wait(lambda: len(installation.pods(pay)) == 3, "what is guaranteed")
        status, answer = installation.create_pod(pay)
        assert status == 429, answer
        assert "hard 5, used 5, asked 1, guaranteed 3 of which 3 used, kept for others 0" in answer["message"]
        document = installation.servers[0].status()
        [window] = document["pools"][0]["windows"]
        assert [window[key] for key in ("used", "guaranteed", "shared", "sharedLeft")] == [5, 3, 2, 0]
        [member] = [service for service in document["services"] if service["name"] == "pay"]
        assert member["guaranteed"] == [{"window": "1h", "resource": "pods", "hard": 3, "used": 3, "left": 0}]


def test_what_is_guaranteed_of_live_pods_is_there_after_kills_and_an_emptied_redis(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    with controller_fixture(plane, identities, LIVE_POLICY, [PAY, TOOLS], a_redis.url) as running:
        running.wait(lambda: is_enforced(running), "the limits of the pool to be enforced")
        deploy(plane, "many", TOOLS, 5)
        running.wait(lambda: len(list_live(running, TOOLS)) == 2, "what all share")
        expect_denied(
            running, TOOLS, "pods live at one time: hard 5, used 2, asked 1, kept for others 3; could pass when"
        )
        deploy(plane, "pay", PAY, 4)
        running.wait(lambda: len(list_live(running, PAY)) == 3, "what is guaranteed")
        expect_denied(running, PAY, "hard 5, used 5, asked 1, guaranteed 3 of which 3 used, kept for others 0")
        row = read_pods_row(running)
        assert [row[key] for key in ("used", "guaranteed", "shared", "sharedLeft")] == [5, 3, 2, 0]

        # A Pod that ends frees room for its own service only: the rest of the guarantee is kept.
        [controller] = running.installation.controllers
        running.installation.stop_controller(controller, kill=True)
        plane.kubectl("scale", "deployment", "pay", "--replicas=1", "-n", PAY)
        plane.wait(lambda: len(list_live(running, PAY)) == 1, "two Pods to end")
        running.start_controller()
        running.wait(lambda: read_pods_row(running)["used"] == 3, "the new leader to free their room")
        expect_denied(running, TOOLS, "hard 5, used 3, asked 1, kept for others 2")

        # Without the counters nothing is enforced until the controller has shown all Pods again: nobody may ask then.
        plane.kubectl("scale", "deployment", "many", "--replicas=2", "-n", TOOLS)
        running.wait(lambda: wants_no_more(plane, TOOLS), "the ReplicaSet to ask for no more Pods")
        a_redis.cli("FLUSHALL")
        running.wait(
            lambda: is_enforced(running) and read_pods_row(running)["used"] == 3, "all Pods to be counted again"
        )
        expect_denied(running, TOOLS, "hard 5, used 3, asked 1, kept for others 2")
        plane.kubectl("scale", "deployment", "pay", "--replicas=3", "-n", PAY)
        running.wait(lambda: len(list_live(running, PAY)) == 3, "what is guaranteed, again")
        assert read_pods_row(running)["used"] == 5
        assert len(list_live(running, TOOLS)) == 2


def deploy(plane: ControlPlane, name: str, namespace: str, replicas: int) -> None:
    plane.kubectl("create", "deployment", name, "--image=i", f"--replicas={replicas}", "-n", namespace)


def wants_no_more(plane: ControlPlane, namespace: str) -> bool:
    """Return whether the only ReplicaSet asks for two Pods, and has them."""
    [found] = plane.api.get(f"/apis/apps/v1/namespaces/{namespace}/replicasets")["items"]
    status = found["status"]
    is_observed = status.get("observedGeneration") == found["metadata"]["generation"]
    return is_observed and found["spec"]["replicas"] == status["replicas"] == 2


def list_live(running: ControllerFixture, namespace: str) -> list[dict[str, Any]]:
    return [pod for pod in running.installation.pods(namespace) if "deletionTimestamp" not in pod["metadata"]]


def read_pods_row(running: ControllerFixture) -> dict[str, Any]:
    [pool] = running.installation.servers[0].status()["pools"]
    [row] = [row for row in pool["windows"] if row["resource"] == "pods"]
    return dict(row)


def is_enforced(running: ControllerFixture) -> bool:
    return bool(read_pods_row(running)["enforced"])


def expect_denied(running: ControllerFixture, namespace: str, text: str) -> None:
    status, answer = running.installation.create_pod(namespace)
    assert (status, text in answer["message"]) == (429, True), json.dumps(answer)
