"""Webhook configurations that follow the policy: the leader writes them, or reports that they differ."""

import json
from typing import Any

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import WEBHOOKS_RBAC, install_podgate
from tests.cluster.server import SHORT_INTERVALS
from tests.redis_servers import RedisServer
from webhook.adapters.kubernetes.webhook_configurations import FIELD_MANAGER

pytest_plugins = ("tests.redis_servers.fixtures",)

_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
_MUTATING = f"{_CONFIGURATIONS}/mutatingwebhookconfigurations/podgate"


def policy_of(*namespaces: str) -> str:
    services = "".join(
        f"- {{name: {name}, match: {{namespaces: [{name}]}}, placement: {{nodeSelector: {{tier: {name}}}}}}}\n"
        for name in namespaces
    )
    return f"apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n{services}"


def clients(configuration: dict[str, Any]) -> set[str]:
    return {json.dumps(webhook["clientConfig"], sort_keys=True) for webhook in configuration["webhooks"]}


def test_a_new_service_is_judged_without_rendering_anything(plane: ControlPlane, identities: Identities) -> None:
    first, second = ["follow-a"], ["follow-a", "follow-b"]
    plane.create_namespace("follow-b")
    with install_podgate(plane, identities.files, policy_of(*first), first, servers=0) as installation:
        installation.program = SHORT_INTERVALS
        server = installation.start_server("--drain", "0s", "--webhook-configurations", "keep")
        installation.wait_for_calls()
        assert installation.find_tier("follow-a") == "follow-a"
        assert installation.find_tier("follow-b") is None
        before = plane.api.get(_MUTATING)
        installation.change_policy(policy_of(*second))
        plane.wait(
            lambda: installation.find_tier("follow-b") == "follow-b", "the new service to be judged", server.name
        )
        assert installation.find_tier("follow-a") == "follow-a"
        after = plane.api.get(_MUTATING)
        assert clients(after) == clients(before)
        assert {webhook["timeoutSeconds"] for webhook in after["webhooks"]} == {30}, "an operator's timeout is kept"
        assert FIELD_MANAGER in {field["manager"] for field in after["metadata"]["managedFields"]}
        plane.wait(lambda: server.status()["webhooks"]["outdated"] == [], "the comparison", server.name)
        assert server.total("podgate_webhooks_stale") == 0

        # Drift: somebody narrows a webhook so that it is never called.
        patch = [
            {"op": "replace", "path": "/webhooks/0/matchConditions", "value": [{"name": "n", "expression": "1 > 2"}]}
        ]
        plane.api.request("PATCH", _MUTATING, patch, "application/json-patch+json")
        plane.wait(lambda: plane.api.get(_MUTATING)["webhooks"] == after["webhooks"], "the repair", server.name)
        assert server.total("podgate_webhook_configurations_written_total") >= 2
        plane.kubectl("delete", "validatingwebhookconfiguration", "podgate")
        plane.wait(
            lambda: server.status()["webhooks"]["outdated"] == ["ValidatingWebhookConfiguration/podgate: absent"],
            "the absent configuration to be shown",
            server.name,
        )


def test_a_check_reports_what_differs_and_writes_nothing(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    store = ("--store", a_redis.url)
    with install_podgate(plane, identities.files, policy_of("check-a"), ["check-a"], servers=0) as installation:
        installation.program = SHORT_INTERVALS
        installation.start_server("--drain", "0s", *store)
        controller = installation.start_controller(*store)
        installation.wait_for_calls()
        before = plane.api.get(_MUTATING)
        installation.change_policy(policy_of("check-a", "check-b"))
        found = plane.wait(lambda: controller.status()["webhooks"]["outdated"], "the difference", controller.name)
        outdated = found[0]
        assert outdated == "MutatingWebhookConfiguration/podgate: mutate.podgate.io differs in matchConditions"
        assert controller.total("podgate_webhooks_stale") == 2
        assert plane.api.get(_MUTATING)["webhooks"] == before["webhooks"]

        def event() -> bool:
            events = plane.api.get(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")["items"]
            return any(event["reason"] == "WebhooksOutdated" and outdated in event["note"] for event in events)

        plane.wait(event, "the Event", controller.name)


def test_without_the_right_to_read_the_remedy_is_named(plane: ControlPlane, identities: Identities) -> None:
    with install_podgate(plane, identities.files, policy_of("right-a"), ["right-a"], servers=0) as installation:
        installation.program = SHORT_INTERVALS
        plane.kubectl("delete", "clusterrolebinding", "podgate-webhooks-in-memory")
        server = installation.start_server("--drain", "0s")
        error = plane.wait(lambda: (server.status()["webhooks"] or {}).get("error"), "the error", server.name)
        assert "MutatingWebhookConfiguration/podgate: cannot read: HTTP 403" in error
        assert "(ClusterRole podgate-webhooks in manifests/base/11-rbac-webhooks.yaml)" in error
        plane.apply_file(WEBHOOKS_RBAC)
        plane.wait(lambda: server.status()["webhooks"]["error"] is None, "the right to be used", server.name)
