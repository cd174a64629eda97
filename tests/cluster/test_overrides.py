"""Overrides on a real API server: written by a user with few permissions, applied by servers with the manifests'."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.command_runner import podgate
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, installed
from tests.redis_servers import RedisServer

pytest_plugins = ("tests.redis_servers.fixtures",)

OVERRIDES = "podgate-overrides"
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: ["overrides-*"]}
  quota: {windows: [{window: 1h, hard: {pods: 1}}]}
"""
READS = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["podgate-policy"], "verbs": ["get"]}
CHANGES = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [OVERRIDES], "verbs": ["get", "update"]}
CREATES = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}


@contextmanager
def overridden(
    plane: ControlPlane, identities: Identities, namespace: str, *arguments: str, servers: int = 1
) -> Iterator[Installation]:
    flags = ("--drain", "0s", *arguments)
    with installed(plane, identities.files, POLICY, [namespace], servers=servers, arguments=flags) as found:
        try:
            found.wait_for_calls()
            yield found
        finally:
            plane.kubectl("delete", "configmap", OVERRIDES, "-n", NAMESPACE, "--ignore-not-found")


def person(plane: ControlPlane, name: str, *rules: dict[str, Any]) -> Path:
    """Return the kubeconfig of a person with these rights."""
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name, "namespace": NAMESPACE}}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    plane.apply(
        {**role, "kind": "Role", "rules": list(rules)},
        {**role, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]},
    )
    return plane.kubeconfig_for(name)


def admitted(found: Installation) -> bool:
    status, _ = found.create_pod(found.namespaces[0])
    return status == 201


BAD = "- {service: web}\n"


def applied(plane: ControlPlane, text: str) -> str:
    """Apply overrides as a person does without our commands; return what kubectl said."""
    metadata = {"name": OVERRIDES, "namespace": NAMESPACE}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"overrides.yaml": text}}
    how = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    done = plane.kubectl(*how, input=json.dumps(config_map), check=False)
    return done.stdout + done.stderr


def in_force(found: Installation) -> list[list[str]]:
    """Return what each server has in force."""
    documents = [server.status()["overrides"] for server in found.servers]
    return [[entry["service"] for entry in document["entries"]] for document in documents]


def test_user_with_three_rights_sets_and_clears_an_override_of_all_servers(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    kubeconfig = person(plane, "night-shift", READS, CHANGES, CREATES)
    options = ("--kubeconfig", kubeconfig, "--reason", "INC-1")
    with overridden(plane, identities, "overrides-acted", "--store", a_redis.url, servers=2) as found:
        assert [admitted(found), admitted(found)] == [True, False]
        done = podgate("quota", "grant", "web", "--window", "1h", "--hard", "pods=1", "--for", "1h", *options)
        assert done.code == 0, done.err
        plane.wait(lambda: in_force(found) == [["web"], ["web"]], "the override to be in force")
        [shown] = found.servers[0].status()["services"]
        assert shown["override"]["grant"] == [{"window": "1h", "hard": {"pods": "1"}}]
        assert [window["hard"] for window in shown["windows"] if window["window"] == "1h"] == [2]
        assert [admitted(found), admitted(found)] == [True, False]

        assert podgate("override", "web", "--mode", "quota=Audit", "--for", "1h", "--merge", *options).code == 0
        plane.wait(lambda: admitted(found), "the mode to act")
        assert podgate("override", "web", "--clear", "--kubeconfig", kubeconfig).code == 0
        plane.wait(lambda: in_force(found) == [[], []], "the override to be gone")
        assert not admitted(found)


def test_override_expires_and_invalid_overrides_change_nothing(plane: ControlPlane, identities: Identities) -> None:
    options = ("--kubeconfig", plane.kubeconfig, "--reason", "INC-1")
    with overridden(plane, identities, "overrides-ended") as found:
        [server] = found.servers
        assert podgate("override", "web", "--mode", "quota=Audit", "--for", "8s", *options).code == 0
        plane.wait(lambda: in_force(found) == [["web"]], "the override to be in force", server.name)
        assert "denied" in applied(plane, BAD)
        plane.kubectl("delete", "validatingwebhookconfiguration", "podgate-policy")
        plane.wait(lambda: "denied" not in applied(plane, BAD), "the bad overrides to be stored")
        errors = plane.wait(lambda: server.status()["overrides"]["errors"], "the errors to be shown", server.name)
        assert errors[0].startswith(f"configmap {NAMESPACE}/{OVERRIDES}: overrides.yaml:1:3: [0]")
        refused = podgate("override", "web", "--quota-factor", "2", "--for", "1h", *options)
        assert (refused.code, "fix what is listed here" in refused.err) == (2, True)
        plane.wait(lambda: in_force(found) == [[]], "the override to end", server.name)
        assert "override ended" in found.log(server)


def test_invalid_overrides_and_unknown_services_are_denied_at_apply(
    plane: ControlPlane, identities: Identities
) -> None:
    entry = "- {service: SERVICE, modes: {quota: Audit}, until: 2099-01-01T00:00:00Z, reason: INC-1}\n"
    with overridden(plane, identities, "overrides-judged") as found:
        printed = applied(plane, BAD)
        assert (
            'admission webhook "policy.podgate.io" denied the request: OverridesInvalid: the overrides have ' in printed
        )
        assert "overrides.yaml:1:3: [0].until: (absent): required: add until" in printed
        printed = applied(plane, entry.replace("SERVICE", "wob"))
        assert "overrides.yaml: no service 'wob': the policy has web" in printed
        assert "denied" not in applied(plane, entry.replace("SERVICE", "web"))
        plane.wait(lambda: in_force(found) == [["web"]], "the override to be in force", found.servers[0].name)
        options = ("--kubeconfig", plane.kubeconfig, "--reason", "INC-2", "--for", "1h")
        assert podgate("quota", "grant", "web", "--window", "1h", "--hard", "pods=1", *options).code == 0
        plane.wait(lambda: in_force(found) == [["web", "web"]], "both to be in force", found.servers[0].name)
        entries = found.servers[0].status()["overrides"]["entries"]
        assert [one.get("by") for one in entries] == [None, "kubernetes-admin"], "the command knows who asks"


def test_missing_right_and_unknown_service_are_reported(plane: ControlPlane, identities: Identities) -> None:
    def override(kubeconfig: Path, service: str = "web") -> tuple[int, str]:
        wanted = ("--quota-factor", "2", "--for", "1h", "--reason", "INC-1", "--kubeconfig", kubeconfig)
        done = podgate("override", service, *wanted)
        return done.code, done.err

    with overridden(plane, identities, "overrides-rights"):
        code, printed = override(person(plane, "nobody"))
        assert (code, f"grant the right to get configmaps named {OVERRIDES}" in printed) == (2, True), printed
        code, printed = override(person(plane, "reader", READS, {**CHANGES, "verbs": ["get"]}))
        assert (code, f"grant the right to create configmaps named {OVERRIDES}" in printed) == (2, True), printed
        maker = person(plane, "maker", {**CHANGES, "verbs": ["get"]}, CREATES)
        code, printed = override(maker)
        assert (code, "warning: not checked against the policy: cannot read" in printed) == (0, True), printed
        code, printed = override(person(plane, "reader", READS, {**CHANGES, "verbs": ["get"]}), "wob")
        assert (code, printed) == (4, "error: no service 'wob': the policy has web\n")
        assert podgate("override", "web", "--clear", "--kubeconfig", maker).code == 2
        assert podgate("override", "--list", "-o", "json", "--kubeconfig", maker).code == 0
