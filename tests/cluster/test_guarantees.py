"""A guarantee in a pool behind a real API server: Deployments of two services that share one limit in Redis."""

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
