"""A policy of two teams on a real API server: who may write which part, and a bad part that blocks nobody."""

import json
from typing import Any

from tests.cli.command_runner import podgate
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from webhook.core.document.configmap import KEY, PART_LABEL, PART_PREFIX

ROOT = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- {name: core, match: {namespaces: [parts-core]}, placement: {nodeSelector: {tier: core}}}
parts:
- {name: a, namespaces: ["parts-a"]}
- {name: b, namespaces: ["parts-b"]}
"""
_CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


def part(name: str, tier: str, namespace: str = "") -> dict[str, Any]:
    """Return the ConfigMap of a part with one service, which writes a node selector."""
    match = f"{{namespaces: [{namespace or f'parts-{name}'}]}}"
    service = f"- {{name: {name}, match: {match}, placement: {{nodeSelector: {{tier: {tier}}}}}}}\n"
    text = f"apiVersion: podgate.io/v1alpha1\nkind: PolicyPart\nservices:\n{service}"
    metadata = {"name": f"{PART_PREFIX}{name}", "namespace": NAMESPACE, "labels": {PART_LABEL: name}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: text}}


def wait_for_tier(installation: Installation, namespace: str, expected: str | None) -> None:
    servers = [server.name for server in installation.servers]
    installation.plane.wait(lambda: installation.find_tier(namespace) == expected, f"tier {expected}", *servers)


def let_write(plane: ControlPlane, user: str, name: str) -> None:
    """Let a user update the ConfigMap of one part, as docs/parts.md says."""
    api_group = "rbac.authorization.k8s.io"
    metadata = {"name": f"{PART_PREFIX}{name}", "namespace": NAMESPACE}
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [f"{PART_PREFIX}{name}"]}
    kind = {"apiVersion": f"{api_group}/v1", "metadata": metadata}
    plane.apply(
        {**kind, "kind": "Role", "rules": [{**rule, "verbs": ["get", "update", "patch"]}]},
        {
            **kind,
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": api_group, "kind": "Role", "name": metadata["name"]},
            "subjects": [{"apiGroup": api_group, "kind": "User", "name": user}],
        },
    )


def write_as(plane: ControlPlane, user: str, document: dict[str, Any]) -> tuple[int, str]:
    """Replace a ConfigMap as a user; return the status and the message."""
    path = f"{_CONFIG_MAPS}/{document['metadata']['name']}"
    status, answer = plane.api.request("PUT", path, document, user=user)
    return status, str(answer.get("message", ""))


def test_each_team_writes_its_part_and_a_bad_one_blocks_nobody(plane: ControlPlane, identities: Identities) -> None:
    namespaces = ["parts-core", "parts-a", "parts-b"]
    with install_podgate(plane, identities.files, ROOT, namespaces, servers=0) as installation:
        server = installation.start_server("--drain", "0s", "--webhook-configurations", "keep")
        try:
            plane.apply(part("a", "one"), part("b", "one"))
            let_write(plane, "ann", "a")
            for namespace, expected in (("parts-core", "core"), ("parts-a", "one"), ("parts-b", "one")):
                wait_for_tier(installation, namespace, expected)

            assert write_as(plane, "ann", part("a", "two"))[0] == 200
            assert write_as(plane, "ann", part("b", "two"))[0] == 403
            wait_for_tier(installation, "parts-a", "two")

            # The webhook refuses a part outside its namespaces, once it is configured for parts.
            def is_refused() -> bool:
                return "outside the namespaces of part a" in write_as(plane, "ann", part("a", "x", "parts-b"))[1]

            plane.wait(is_refused, "parts to be reviewed", server.name)

            # A bad part is stored while no server reviews it.
            installation.stop_server(server)
            assert write_as(plane, "ann", part("a", "x", "parts-b"))[0] == 200
            plane.apply(part("b", "two"))
            server = installation.start_server("--drain", "0s", "--webhook-configurations", "keep")
            wait_for_tier(installation, "parts-b", "two")
            wait_for_tier(installation, "parts-a", "two")  # the former service stays, also after the restart
            assert any("outside the namespaces of part a" in error for error in server.status()["policy"]["errors"])
            assert server.total("podgate_policy_part_refused") == 1
            assert '"part of the policy rejected"' in installation.log(server)

            # Commands see the document that servers assemble.
            rendered = podgate("policy", "diff", "wished", "live", "--kubeconfig", str(plane.kubeconfig))
            assert (rendered.code, rendered.out) == (0, ""), rendered

            assert write_as(plane, "ann", part("a", "three"))[0] == 200
            wait_for_tier(installation, "parts-a", "three")
            plane.wait(lambda: server.status()["policy"]["errors"] == [], "the parts to be valid", server.name)
            plane.delete(f"{_CONFIG_MAPS}/{PART_PREFIX}b")
            wait_for_tier(installation, "parts-b", None)
        finally:
            plane.delete(*(f"{_CONFIG_MAPS}/{PART_PREFIX}{name}" for name in ("a", "b")))


def test_a_name_and_not_a_label_says_which_part_it_is(plane: ControlPlane, identities: Identities) -> None:
    with install_podgate(plane, identities.files, ROOT, ["parts-a", "parts-b"], servers=0) as installation:
        server = installation.start_server("--drain", "0s", "--webhook-configurations", "keep")
        try:
            plane.apply(part("b", "one"))
            wait_for_tier(installation, "parts-b", "one")
            forged = json.loads(json.dumps(part("b", "forged")))
            forged["metadata"]["name"] = f"{PART_PREFIX}a"
            plane.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(forged), check=False)
            installation.stop_server(server)
            plane.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(forged))
            server = installation.start_server("--drain", "0s", "--webhook-configurations", "keep")
            wait_for_tier(installation, "parts-b", "one")
            assert any(f"label it {PART_LABEL}=a" in error for error in server.status()["policy"]["errors"])
        finally:
            plane.delete(*(f"{_CONFIG_MAPS}/{PART_PREFIX}{name}" for name in ("a", "b")))
