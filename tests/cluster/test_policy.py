"""The policy in its ConfigMap: validated on admission, reloaded without a restart, and kept when it becomes invalid."""

import pytest

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import LAST_GOOD, POLICY, Installation, install_podgate
from tests.cluster.server import Server
from tests.redis_servers import RedisServer

pytest_plugins = ("tests.redis_servers.fixtures",)

FIRST = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: ["policy-*"]}
  failureMode: Closed
  placement: {nodeSelector: {tier: first}}
"""
SECOND = FIRST.replace("first", "second")
INVALID = FIRST.replace("policy-*", "Policy_1").replace("Closed", "Shut")


def tier(installation: Installation) -> str:
    """Return the node selector `tier` of a new Pod."""
    status, pod = installation.create_pod(installation.namespaces[0], dry_run=True)
    assert status == 201, pod
    return str(pod["spec"]["nodeSelector"]["tier"])


def test_policy_change_applies_to_the_next_pod_without_a_restart(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    arguments = ("--drain", "0s", "--store", a_redis.url)
    with install_podgate(
        plane, identities.files, FIRST, ["policy-changed"], servers=2, arguments=arguments
    ) as installation:
        installation.wait_for_calls()
        assert tier(installation) == "first"
        installation.change_policy(SECOND)
        assert {tier(installation) for _ in range(4)} == {"second"}
        assert all(server.status()["policy"]["errors"] == [] for server in installation.servers)


def test_invalid_policy_is_denied_at_apply_with_line_and_column(plane: ControlPlane, identities: Identities) -> None:
    with install_podgate(plane, identities.files, FIRST, ["policy-refused"]) as installation:
        installation.wait_for_calls()
        printed = installation.apply_policy(INVALID, check=False)
        assert (
            'admission webhook "policy.podgate.io" denied the request: PolicyInvalid: the policy has 2 errors'
            in printed
        )
        assert 'policy.yaml:5:24: services[0].match.namespaces[0]: "Policy_1": ' in printed
        assert "policy.yaml:6:16: services[0].failureMode: Shut: " in printed
        assert installation.read_stored(POLICY) == FIRST
        assert tier(installation) == "first"


@pytest.mark.parametrize("arrival", ["away", "past"])
def test_stored_invalid_policy_changes_nothing(plane: ControlPlane, identities: Identities, arrival: str) -> None:
    with install_podgate(plane, identities.files, FIRST, [f"policy-{arrival}"]) as installation:
        installation.wait_for_calls()
        [server] = installation.servers
        plane.wait(
            lambda: installation.read_stored(LAST_GOOD) == FIRST,
            "the valid policy to be stored as last good",
            server.name,
        )
        if arrival == "away":
            installation.stop_server(server)
            installation.apply_policy(INVALID)
            server = installation.start_server("--drain", "0s")
        else:
            plane.kubectl("delete", "validatingwebhookconfiguration", "podgate-policy")
            plane.wait(
                lambda: "denied" not in installation.apply_policy(INVALID, check=False),
                "the invalid policy to be stored",
            )
        errors = plane.wait(lambda: server.status()["policy"]["errors"], "the errors to be shown", server.name)
        assert errors[0].startswith(f"configmap {NAMESPACE}/{POLICY}: policy.yaml:5:24: services[0].match")
        assert installation.read_stored(POLICY) == INVALID
        assert installation.read_stored(LAST_GOOD) == FIRST
        assert server.metrics()["podgate_policy_last_reload_successful"] == 0
        assert tier(installation) == "first"
        installation.change_policy(SECOND)
        assert tier(installation) == "second"
        assert server.status()["policy"]["errors"] == []


def test_deleted_policy_stays_in_force(plane: ControlPlane, identities: Identities) -> None:
    with install_podgate(plane, identities.files, FIRST, ["policy-deleted"]) as installation:
        installation.wait_for_calls()
        [server] = installation.servers
        plane.kubectl("delete", "configmap", POLICY, "-n", NAMESPACE)
        errors = plane.wait(lambda: server.status()["policy"]["errors"], "the error to be shown", server.name)
        assert f"configmap {NAMESPACE}/{POLICY}" in errors[0]
        assert tier(installation) == "first"
        installation.apply_policy(SECOND)
        plane.wait(lambda: tier(installation) == "second", "the new policy to be in force", server.name)


def test_server_without_a_valid_policy_is_not_ready(plane: ControlPlane, identities: Identities) -> None:
    with install_podgate(plane, identities.files, FIRST, [], servers=0) as installation:
        installation.apply_policy(INVALID)
        server = installation.start_server("--drain", "0s")
        assert not is_ready(installation, server)
        installation.apply_policy(FIRST)
        plane.wait(lambda: is_ready(installation, server), "the server to be ready", server.name)


def is_ready(installation: Installation, server: Server) -> bool:
    return server.admission in {target.address for target in installation.load_balancer.ready}
