"""Events on a real API server, under the rights of the manifests: kubectl shows them, and each only once."""

import asyncio
import json
from collections import Counter
from typing import Any

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import POLICY, Installation, installed
from tests.cluster.server import Server
from tests.harness.fake_apiserver import until
from tests.redis_servers import RedisServer
from webhook.adapters.kubernetes import EventSender, connect
from webhook.adapters.kubernetes.events.event_object import EventType, Happening, Regarding, in_bounds
from webhook.core.document import configmap
from webhook.ports import WatchReports

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
BROKEN = QUOTA.replace("Closed", "Shut")


def events(found: Installation, namespace: str, reason: str) -> list[dict[str, Any]]:
    listed = found.plane.api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    return [event for event in listed["items"] if event["reason"] == reason]


def of_config_map(found: Installation, name: str, reason: str) -> list[dict[str, Any]]:
    """Return the Events of a ConfigMap as it is there now, not of its namesakes of other tests."""
    uid = found.plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}")["metadata"]["uid"]
    return [event for event in events(found, NAMESPACE, reason) if event["regarding"].get("uid") == uid]


def told_by(server: Server) -> Counter[str]:
    """Return what has become of a server's Events, where any has."""
    results = ("written", "known", "dropped", "failed")
    return +Counter({result: int(server.total("podgate_events_total", f'result="{result}"')) for result in results})


def test_a_deployment_over_its_quota_has_one_event_a_minute_on_its_replica_set(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    namespace, shared = "events-counted", ("--drain", "0s", "--store", a_redis.url)
    with installed(plane, identities.files, QUOTA, [namespace], servers=2, arguments=shared) as found:
        found.wait_for_calls()
        plane.kubectl("create", "deployment", "web", "--image=i", "--replicas=9", "-n", namespace)

        def asked() -> Server | None:
            """Return the server that the API server's connections lead to, once it has denied often."""
            denials = {server.total("podgate_quota_denied_total"): server for server in found.servers}
            return denials[max(denials)] if max(denials) >= 3 else None

        first = plane.wait(asked, "a server to deny", *(server.name for server in found.servers))
        # One is of the policy; there are more where minutes pass.
        plane.wait(lambda: told_by(first).total() >= 2, "the server to tell", first.name)
        found.stop_server(first)
        [second] = found.servers
        plane.kubectl("scale", "deployment/web", "--replicas=10", "-n", namespace)
        plane.wait(lambda: second.total("podgate_quota_denied_total"), "the other server to deny", second.name)
        plane.wait(lambda: told_by(second).total() >= 2, "the other server to tell", second.name)
        [replica_set] = plane.api.get(f"/apis/apps/v1/namespaces/{namespace}/replicasets")["items"]
        reported = events(found, namespace, "QuotaExceeded")
        assert Counter(event["eventTime"][:16] for event in reported).most_common(1)[0][1] == 1, reported
        assert {event["regarding"]["uid"] for event in reported} == {replica_set["metadata"]["uid"]}
        assert {(event["type"], event["reportingController"]) for event in reported} == {
            ("Warning", "podgate.io/podgate")
        }
        described = plane.kubectl("describe", "rs", "-n", namespace).stdout
        assert "Warning  QuotaExceeded" in described
        assert "service counted: pods in 30m: hard 2, used 2, asked 1; could pass from" in described
        shown = plane.kubectl("get", "events", "-n", namespace).stdout
        assert f"QuotaExceeded       replicaset/{replica_set['metadata']['name']}" in shown
        assert told_by(second).keys() <= {"written", "known"}


def test_policy_results_are_events_of_its_config_map(plane: ControlPlane, identities: Identities) -> None:
    with installed(plane, identities.files, QUOTA, ["events-policy"]) as found:
        found.wait_for_calls()
        [server] = found.servers
        plane.kubectl("delete", "validatingwebhookconfiguration", "podgate-policy")
        plane.wait(lambda: "denied" not in found.apply_policy(BROKEN, check=False), "the bad policy to be stored")

        def described() -> str:
            return plane.kubectl("describe", "configmap", POLICY, "-n", NAMESPACE).stdout

        plane.wait(lambda: "Warning  PolicyRefused" in described(), "the refusal to be shown", server.name)
        assert "Normal   PolicyLoaded" in described()
        [refused] = of_config_map(found, POLICY, "PolicyRefused")
        assert (
            "stays in force: configmap podgate-system/podgate-policy: policy.yaml:6:16: services[0]" in refused["note"]
        )
        found.change_policy(QUOTA)
        plane.wait(lambda: described().count("PolicyLoaded") == 2, "the return of the good one", server.name)


def test_overrides_results_are_events_of_their_config_map(plane: ControlPlane, identities: Identities) -> None:
    metadata = {"name": configmap.OVERRIDES, "namespace": NAMESPACE}
    entry = "- {service: counted, until: 2999-01-01T00:00:00Z, reason: INC-1, quotaFactor: 3}"

    def put(text: str) -> str:
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"overrides.yaml": text}}
        done = plane.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(manifest), check=False)
        return done.stdout + done.stderr

    def described() -> str:
        return plane.kubectl("describe", "configmap", configmap.OVERRIDES, "-n", NAMESPACE).stdout

    with installed(plane, identities.files, QUOTA, ["events-overrides"]) as found:
        [server] = found.servers
        # It refuses what cannot act; here it is stored all the same.
        plane.kubectl("delete", "validatingwebhookconfiguration", "podgate-policy")
        try:
            for text, words in (
                (entry, "OverrideInForce"),
                ("- {service: counted}", "OverridesRefused"),
                ("[]", "OverrideEnded"),
            ):
                plane.wait(lambda text=text: "serverside-applied" in put(text), f"{text} to be stored")  # type: ignore[misc]  # mypy: a default
                plane.wait(lambda words=words: words in described(), f"{words} to be shown", server.name)  # type: ignore[misc]  # mypy: a default
            [began] = of_config_map(found, configmap.OVERRIDES, "OverrideInForce")
        finally:
            plane.kubectl("delete", "configmap", configmap.OVERRIDES, "-n", NAMESPACE)
        assert began["note"] == "service counted: quotaFactor: 3 until 2999-01-01T00:00:00Z: INC-1"


async def test_largest_event_is_accepted_and_a_terminating_namespace_accepts_none(
    api_alone: ControlPlane, identities: Identities
) -> None:
    results: list[str] = []
    troubles: list[str] = []
    reports = WatchReports(lambda: None, troubles.append, lambda _: None)
    with installed(api_alone, identities.files, QUOTA, ["events-going"], servers=0) as found:
        async with await connect(found.kubeconfig()) as client:
            sender = EventSender(client, "i" * 300, reports=reports, on_result=results.append)
            sending = asyncio.create_task(sender.run())

            async def tell(occasion: str) -> str:
                about = Regarding("apps/v1", "ReplicaSet", "events-going", "a" * 63 + ("." + "a" * 62) * 3, "uid")
                note = in_bounds("\u00fc" * 2000)
                assert sender.offer(
                    Happening(about, EventType.WARNING, "QuotaExceeded", "CreatePod", note, occasion, 1)
                )
                wanted = len(results) + 1
                await until(lambda: len(results) == wanted)
                return results[-1]

            assert [await tell("1"), await tell("1"), await tell("2")] == ["written", "known", "written"]
            # Nobody is there who would finish it: it stays on its way out.
            await asyncio.to_thread(api_alone.kubectl, "delete", "namespace", "events-going", "--wait=false")
            assert await tell("3") == "dropped"
            assert troubles == []
            sending.cancel()
