"""Two servers on one Redis behind a real API server share one quota."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import installed
from tests.redis_servers import RedisServer, usual_names

pytest_plugins = ("tests.redis_servers.fixtures",)

ASKING = 8
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: shared
  match: {namespaces: ["shared-*"]}
  failureMode: Closed
  quota: {windows: [{window: 10m, hard: {pods: 7}}]}
"""


@pytest.mark.parametrize("redis_program", usual_names(), indirect=True)
def test_servers_share_the_limit_of_seven_pods_in_redis(
    plane: ControlPlane, identities: Identities, redis_server: RedisServer
) -> None:
    namespace = f"shared-{redis_server.port}"
    arguments = ("--drain", "0s", "--store", redis_server.url, "--store-deadline", "30s")
    with installed(plane, identities.files, POLICY, [namespace], servers=2, arguments=arguments) as found:
        found.wait_for_calls()
        plane.kubectl("create", "deployment", "web", "--image=i", "--replicas=20", "-n", namespace)
        plane.wait(lambda: len(found.pods(namespace)) == 7, "seven Pods")
        denials = 'podgate_quota_denied_total{of="service",resource="pods",service="shared",window="10m"}'
        servers = found.servers

        def refused_by_both() -> bool:
            """Ask over several connections at once: one alone, as the ReplicaSet's, leads to one server for minutes."""
            with ThreadPoolExecutor(ASKING) as threads:
                asked = [threads.submit(found.create_pod, namespace) for _ in range(ASKING)]
            assert {one.result()[0] for one in asked} == {429}
            return all(one.metrics().get(denials, 0) > 0 for one in servers)

        # Who counts for itself alone refuses only after seven of its own: both could not have.
        plane.wait(refused_by_both, "both servers to refuse")
        assert len(found.pods(namespace)) == 7
