"""Events on a real API server, with the rights of the manifests: kubectl shows each once."""

import json
from collections import Counter
from typing import Any

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import POLICY, Installation, install_podgate
from tests.cluster.server import Server
from tests.redis_servers import RedisServer
from webhook.core.document import configmap

pytest_plugins = ("tests.redis_servers.fixtures",)

QUOTA = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: counted
  match: {namespaces: ["events-*"]}
  failureMode: Closed
  quota: {windows: [{window: 30m, hard: {pods: 2}}]}
"""
INVALID = QUOTA.replace("Closed", "Shut")


def events(installation: Installation, namespace: str, reason: str) -> list[dict[str, Any]]:
    event_list = installation.plane.api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    return [event for event in event_list["items"] if event["reason"] == reason]


def list_config_map_events(installation: Installation, name: str, reason: str) -> list[dict[str, Any]]:
    """Return the Events of the current ConfigMap, without those of deleted ones of the same name."""
    uid = installation.plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}")["metadata"]["uid"]
    return [event for event in events(installation, NAMESPACE, reason) if event["regarding"].get("uid") == uid]


def events_by_result(server: Server) -> Counter[str]:
    """Return the number of a server's Events by result, without zeros."""
    results = ("written", "known", "dropped", "failed")
    return +Counter({result: int(server.total("podgate_events_total", f'result="{result}"')) for result in results})


def test_deployment_over_its_quota_has_one_event_a_minute_on_its_replica_set(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    namespace, shared = "events-counted", ("--drain", "0s", "--store", a_redis.url)
    with install_podgate(plane, identities.files, QUOTA, [namespace], servers=2, arguments=shared) as installation:
        installation.wait_for_calls()
        plane.kubectl("create", "deployment", "web", "--image=i", "--replicas=9", "-n", namespace)

        def server_with_denials() -> Server | None:
            """Return the server with the connections of the API server after several denials."""
            denials = {server.total("podgate_quota_denied_total"): server for server in installation.servers}
            return denials[max(denials)] if max(denials) >= 3 else None

        first = plane.wait(server_with_denials, "a server to deny", *(server.name for server in installation.servers))
        # One Event is of the policy; there are more after a minute.
        plane.wait(lambda: events_by_result(first).total() >= 2, "the server to write Events", first.name)
        installation.stop_server(first)
        [second] = installation.servers
        plane.kubectl("scale", "deployment/web", "--replicas=10", "-n", namespace)
        plane.wait(lambda: second.total("podgate_quota_denied_total"), "the other server to deny", second.name)
        plane.wait(lambda: events_by_result(second).total() >= 2, "the other server to write Events", second.name)
        [replica_set] = plane.api.get(f"/apis/apps/v1/namespaces/{namespace}/replicasets")["items"]
        reported = events(installation, namespace, "QuotaExceeded")
        assert Counter(event["eventTime"][:16] for event in reported).most_common(1)[0][1] == 1, reported
        assert {event["regarding"]["uid"] for event in reported} == {replica_set["metadata"]["uid"]}
        assert {(event["type"], event["reportingController"]) for event in reported} == {
            ("Warning", "podgate.io/podgate")
        }
        description = plane.kubectl("describe", "rs", "-n", namespace).stdout
        assert "Warning  QuotaExceeded" in description
        assert "service counted: pods in 30m: hard 2, used 2, asked 1; could pass from" in description
        event_table = plane.kubectl("get", "events", "-n", namespace).stdout
        assert f"QuotaExceeded       replicaset/{replica_set['metadata']['name']}" in event_table
        assert events_by_result(second).keys() <= {"written", "known"}


def test_policy_results_are_events_of_its_config_map(plane: ControlPlane, identities: Identities) -> None:
    with install_podgate(plane, identities.files, QUOTA, ["events-policy"]) as installation:
        installation.wait_for_calls()
        [server] = installation.servers
        plane.kubectl("delete", "validatingwebhookconfiguration", "podgate-policy")
        plane.wait(
            lambda: "denied" not in installation.apply_policy(INVALID, check=False), "the invalid policy to be stored"
        )

        def description() -> str:
            return plane.kubectl("describe", "configmap", POLICY, "-n", NAMESPACE).stdout

        plane.wait(lambda: "Warning  PolicyRefused" in description(), "the rejection to be shown", server.name)
        assert "Normal   PolicyLoaded" in description()
        [refused] = list_config_map_events(installation, POLICY, "PolicyRefused")
        assert (
            "stays in force: configmap podgate-system/podgate-policy: policy.yaml:6:16: services[0]" in refused["note"]
        )
        installation.change_policy(QUOTA)
        plane.wait(lambda: description().count("PolicyLoaded") == 2, "the valid policy to be loaded again", server.name)


def test_overrides_results_are_events_of_their_config_map(plane: ControlPlane, identities: Identities) -> None:
    metadata = {"name": configmap.OVERRIDES, "namespace": NAMESPACE}
    entry = "- {service: counted, until: 2999-01-01T00:00:00Z, reason: INC-1, quotaFactor: 3}"

    def put(text: str) -> str:
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"overrides.yaml": text}}
        done = plane.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(manifest), check=False)
        return done.stdout + done.stderr

    def description() -> str:
        return plane.kubectl("describe", "configmap", configmap.OVERRIDES, "-n", NAMESPACE).stdout

    with install_podgate(plane, identities.files, QUOTA, ["events-overrides"]) as installation:
        [server] = installation.servers
        # Without the webhook, invalid overrides can be stored.
        plane.kubectl("delete", "validatingwebhookconfiguration", "podgate-policy")
        try:
            for text, words in (
                (entry, "OverrideInForce"),
                ("- {service: counted}", "OverridesRefused"),
                ("[]", "OverrideEnded"),
            ):
                plane.wait(lambda text=text: "serverside-applied" in put(text), f"{text} to be stored")  # type: ignore[misc]  # mypy: a default
                plane.wait(lambda words=words: words in description(), f"{words} to be shown", server.name)  # type: ignore[misc]  # mypy: a default
            [override_event] = list_config_map_events(installation, configmap.OVERRIDES, "OverrideInForce")
        finally:
            plane.kubectl("delete", "configmap", configmap.OVERRIDES, "-n", NAMESPACE)
        assert override_event["note"] == "service counted: quotaFactor: 3 until 2999-01-01T00:00:00Z: INC-1"
