"""Two servers on one Redis behind a real API server share one quota."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import PATIENT, install_podgate
from tests.redis_servers import RedisServer, usual_names

pytest_plugins = ("tests.redis_servers.fixtures",)

CONNECTIONS = 8
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
    arguments = ("--drain", "0s", "--store", redis_server.url, "--store-deadline", "30s", *PATIENT)
    with install_podgate(plane, identities.files, POLICY, [namespace], servers=2, arguments=arguments) as installation:
        installation.wait_for_calls()
        plane.kubectl("create", "deployment", "web", "--image=i", "--replicas=20", "-n", namespace)
        plane.wait(lambda: len(installation.pods(namespace)) == 7, "seven Pods")
        denials = 'podgate_quota_denied_total{of="service",resource="pods",service="shared",window="10m"}'
        servers = installation.servers

        def has_been_denied_by_both() -> bool:
            """Create Pods on several connections, because one connection stays on one server."""
            with ThreadPoolExecutor(CONNECTIONS) as threads:
                futures = [threads.submit(installation.create_pod, namespace) for _ in range(CONNECTIONS)]
            answers = [item.result() for item in futures]
            assert {status for status, _ in answers} == {429}, answers
            return all(item.metrics().get(denials, 0) > 0 for item in servers)

        # Both servers deny only if they share the counter.
        plane.wait(has_been_denied_by_both, "both servers to deny Pods")
        assert len(installation.pods(namespace)) == 7
