"""The policy in its ConfigMap: validated on admission, reloaded without a restart, kept despite an invalid one."""

import pytest

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import LAST_GOOD, POLICY, Installation, installed
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
BROKEN = FIRST.replace("policy-*", "Policy_1").replace("Closed", "Shut")


def tier(found: Installation) -> str:
    """Return what a new Pod is told by the policy in force."""
    status, pod = found.create_pod(found.namespaces[0], dry_run=True)
    assert status == 201, pod
    return str(pod["spec"]["nodeSelector"]["tier"])


def test_policy_change_applies_to_the_next_pod_without_a_restart(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    arguments = ("--drain", "0s", "--store", a_redis.url)
    with installed(plane, identities.files, FIRST, ["policy-changed"], servers=2, arguments=arguments) as found:
        found.wait_for_calls()
        assert tier(found) == "first"
        found.change_policy(SECOND)
        assert {tier(found) for _ in range(4)} == {"second"}
        assert all(server.status()["policy"]["errors"] == [] for server in found.servers)


def test_invalid_policy_is_denied_at_apply_with_line_and_column(plane: ControlPlane, identities: Identities) -> None:
    with installed(plane, identities.files, FIRST, ["policy-refused"]) as found:
        found.wait_for_calls()
        printed = found.apply_policy(BROKEN, check=False)
        assert (
            'admission webhook "policy.podgate.io" denied the request: PolicyInvalid: the policy has 2 errors'
            in printed
        )
        assert 'policy.yaml:5:24: services[0].match.namespaces[0]: "Policy_1": ' in printed
        assert "policy.yaml:6:16: services[0].failureMode: Shut: " in printed
        assert found.stored(POLICY) == FIRST
        assert tier(found) == "first"


@pytest.mark.parametrize("arrival", ["away", "past"])
def test_stored_invalid_policy_changes_nothing(plane: ControlPlane, identities: Identities, arrival: str) -> None:
    with installed(plane, identities.files, FIRST, [f"policy-{arrival}"]) as found:
        found.wait_for_calls()
        [server] = found.servers
        plane.wait(lambda: found.stored(LAST_GOOD) == FIRST, "the good policy to be kept", server.name)
        if arrival == "away":
            found.stop_server(server)
            found.apply_policy(BROKEN)
            server = found.start_server("--drain", "0s")
        else:
            plane.kubectl("delete", "validatingwebhookconfiguration", "podgate-policy")
            plane.wait(lambda: "denied" not in found.apply_policy(BROKEN, check=False), "the bad policy to be stored")
        errors = plane.wait(lambda: server.status()["policy"]["errors"], "the errors to be shown", server.name)
        assert errors[0].startswith(f"configmap {NAMESPACE}/{POLICY}: policy.yaml:5:24: services[0].match")
        assert found.stored(POLICY) == BROKEN
        assert found.stored(LAST_GOOD) == FIRST
        assert server.metrics()["podgate_policy_last_reload_successful"] == 0
        assert tier(found) == "first"
        found.change_policy(SECOND)
        assert tier(found) == "second"
        assert server.status()["policy"]["errors"] == []


def test_deleted_policy_stays_in_force(plane: ControlPlane, identities: Identities) -> None:
    with installed(plane, identities.files, FIRST, ["policy-deleted"]) as found:
        found.wait_for_calls()
        [server] = found.servers
        plane.kubectl("delete", "configmap", POLICY, "-n", NAMESPACE)
        errors = plane.wait(lambda: server.status()["policy"]["errors"], "the loss to be shown", server.name)
        assert f"configmap {NAMESPACE}/{POLICY}" in errors[0]
        assert tier(found) == "first"
        found.apply_policy(SECOND)
        plane.wait(lambda: tier(found) == "second", "the new policy to act", server.name)


def test_server_without_a_valid_policy_is_not_ready(plane: ControlPlane, identities: Identities) -> None:
    with installed(plane, identities.files, FIRST, [], servers=0) as found:
        found.apply_policy(BROKEN)
        server = found.start_server("--drain", "0s")
        assert not is_ready(found, server)
        found.apply_policy(FIRST)
        plane.wait(lambda: is_ready(found, server), "the server to be ready", server.name)


def is_ready(found: Installation, server: Server) -> bool:
    return server.admission in {target.address for target in found.load_balancer.ready}
