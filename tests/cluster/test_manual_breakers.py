"""Manual breaker states on a real API server: they apply to all servers, and each transition is an Event."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.cli.command_runner import podgate
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.redis_servers import RedisServer

pytest_plugins = ("tests.redis_servers.fixtures",)

OVERRIDES = "podgate-overrides"
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: NAME
  match: {namespaces: [breakers-NAME]}
  quota: {windows: [{window: 1h, hard: {pods: 2}}]}
  breaker: {quotaExceeded: {count: 1, countBy: Request}, openFor: 15s}
"""


@contextmanager
def breaker_installation(
    plane: ControlPlane, identities: Identities, service: str, redis: RedisServer, servers: int = 1
) -> Iterator[Installation]:
    """Install servers and a controller on one Redis, with the rights of the manifests, and one service."""
    policy, namespace = POLICY.replace("NAME", service), f"breakers-{service}"
    flags = ("--drain", "0s", "--store", redis.url, "--store-deadline", "10s")
    with install_podgate(
        plane, identities.files, policy, [namespace], servers=servers, arguments=flags
    ) as installation:
        try:
            controller = installation.start_controller("--store", redis.url)
            installation.wait_for_calls()
            plane.wait(lambda: controller.status()["leads"], "the controller to lead", controller.name)
            yield installation
        finally:
            plane.kubectl("delete", "configmap", OVERRIDES, "-n", NAMESPACE, "--ignore-not-found")


def states(installation: Installation) -> list[str]:
    """Return the state of the breaker on each server."""
    return [server.status()["services"][0]["breaker"]["state"] for server in installation.servers]


def events(installation: Installation, reason: str) -> list[dict[str, Any]]:
    """Return the Events of the current ConfigMap of the policy."""
    uid = installation.plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/podgate-policy")["metadata"]["uid"]
    listed = installation.plane.api.get(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")["items"]
    return [event for event in listed if event["reason"] == reason and event["regarding"].get("uid") == uid]


def wait_for_event(installation: Installation, reason: str) -> dict[str, Any]:
    """Wait for the Event, and return it; only one process must write it."""
    names = [process.name for process in (*installation.servers, *installation.controllers)]
    installation.plane.wait(lambda: events(installation, reason), f"{reason} to be written", *names)
    [event] = events(installation, reason)
    return event


def test_manual_breaker_changes_apply_to_all_servers_and_are_events_of_the_policy(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    options = ("--kubeconfig", plane.kubeconfig, "--reason", "INC-1")
    with breaker_installation(plane, identities, "forced", a_redis, servers=2) as installation:
        done = podgate("breaker", "open", "forced", "--for", "1h", *options)
        assert done.code == 0, done.err
        plane.wait(lambda: states(installation) == ["FORCED_OPEN"] * 2, "both servers to force the breaker open")
        status, answer = installation.create_pod("breakers-forced")
        assert (status, "BreakerOpen: service forced: the breaker was forced open" in answer["message"]) == (
            503,
            True,
        )
        opened = wait_for_event(installation, "BreakerForcedOpen")
        assert (opened["type"], opened["note"].partition(" (generation")[0]) == (
            "Warning",
            "service forced: the breaker was CLOSED, is FORCED_OPEN: INC-1",
        )
        assert "BreakerForcedOpen" in plane.kubectl("describe", "configmap", "podgate-policy", "-n", NAMESPACE).stdout
        assert "breaker: ForcedOpen" in podgate("override", "--list", "-o", "table", *options[:2]).out

        assert podgate("breaker", "reset", "forced", "--merge", *options).code == 0
        plane.wait(lambda: states(installation) == ["CLOSED"] * 2, "both servers to close the breaker")
        assert wait_for_event(installation, "BreakerClosed")["type"] == "Normal"
        assert installation.create_pod("breakers-forced")[0] == 201
        assert podgate("breaker", "open", "nope", "--for", "1h", *options).code == 4

        # Without the override, a trip on one server opens the breaker on both, and one process writes the Event.
        assert [installation.create_pod("breakers-forced")[0] for _ in range(2)] == [201, 429]
        plane.wait(lambda: states(installation) == ["OPEN"] * 2, "both servers to show it open")
        assert "quotaExceeded: 1 request refused within 60s" in wait_for_event(installation, "BreakerOpened")["note"]


def test_without_servers_the_controller_ticks_breakers_and_reports_transitions(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    with breaker_installation(plane, identities, "alone", a_redis) as installation:
        [server], [controller] = installation.servers, installation.controllers
        assert [installation.create_pod("breakers-alone")[0] for _ in range(3)] == [201, 201, 429]
        opened = wait_for_event(installation, "BreakerOpened")
        assert "is OPEN: quotaExceeded: 1 request refused within 60s" in opened["note"]
        installation.stop_server(server)
        probing = wait_for_event(installation, "BreakerHalfOpen")
        assert probing["reportingInstance"]
        labels = ('from="OPEN"', 'reason="openForPassed"', 'service="alone"', 'to="HALF_OPEN"')
        assert controller.total("podgate_breaker_transitions_total", *labels) == 1
        assert controller.total("podgate_events_total", 'result="failed"') == 0
