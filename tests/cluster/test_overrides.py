"""Overrides on a real API server: users and servers have minimal rights."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.command_runner import podgate
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.cluster.override_rights import CHANGE_OVERRIDES, CREATE_CONFIG_MAPS, OVERRIDES, READ_POLICY
from tests.cluster.workloads import workload
from tests.redis_servers import RedisServer

pytest_plugins = ("tests.redis_servers.fixtures",)

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: ["overrides-*"]}
  quota: {windows: [{window: 1h, hard: {pods: 1}}]}
"""


@contextmanager
def install_overridable(
    plane: ControlPlane, identities: Identities, namespace: str, *arguments: str, servers: int = 1
) -> Iterator[Installation]:
    flags = ("--drain", "0s", *arguments)
    with install_podgate(
        plane, identities.files, POLICY, [namespace], servers=servers, arguments=flags
    ) as installation:
        try:
            installation.wait_for_calls()
            yield installation
        finally:
            plane.kubectl("delete", "configmap", OVERRIDES, "-n", NAMESPACE, "--ignore-not-found")


def user_kubeconfig(plane: ControlPlane, name: str, *rules: dict[str, Any]) -> Path:
    """Return the kubeconfig of a user with these rights."""
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name, "namespace": NAMESPACE}}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    plane.apply(
        {**role, "kind": "Role", "rules": list(rules)},
        {**role, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]},
    )
    return plane.write_kubeconfig(name)


def is_admitted(installation: Installation) -> bool:
    status, _ = installation.create_pod(installation.namespaces[0])
    return status == 201


INVALID = "- {service: web}\n"


def apply_overrides(plane: ControlPlane, text: str) -> str:
    """Apply overrides with kubectl instead of podgate; return its output."""
    metadata = {"name": OVERRIDES, "namespace": NAMESPACE}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"overrides.yaml": text}}
    command = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    done = plane.kubectl(*command, input=json.dumps(config_map), check=False)
    return done.stdout + done.stderr


def read_stored_overrides(plane: ControlPlane) -> str:
    return str(plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{OVERRIDES}")["data"])


def list_in_force(installation: Installation) -> list[list[str]]:
    """Return the services of the overrides in force on each server."""
    documents = [server.status()["overrides"] for server in installation.servers]
    return [[entry["service"] for entry in document["entries"]] for document in documents]


def test_user_with_three_rights_sets_and_clears_an_override_of_all_servers(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    kubeconfig = user_kubeconfig(plane, "night-shift", READ_POLICY, CHANGE_OVERRIDES, CREATE_CONFIG_MAPS)
    options = ("--kubeconfig", kubeconfig, "--reason", "INC-1")
    with install_overridable(plane, identities, "overrides-acted", "--store", a_redis.url, servers=2) as installation:
        assert [is_admitted(installation), is_admitted(installation)] == [True, False]
        raised = POLICY.replace("pods: 1", "pods: 2")
        done = podgate("policy", "diff", "live", "-", "--kubeconfig", kubeconfig, stdin=raised)
        assert (done.code, done.out) == (1, "service web\n  quota.windows[1h].hard.pods: 1 -> 2 (raised)\n"), done.err
        done = podgate("quota", "grant", "web", "--window", "1h", "--hard", "pods=1", "--for", "1h", *options)
        assert done.code == 0, done.err
        plane.wait(lambda: list_in_force(installation) == [["web"], ["web"]], "the override to be in force")
        [service_status] = installation.servers[0].status()["services"]
        assert service_status["override"]["grant"] == [{"window": "1h", "hard": {"pods": "1"}}]
        assert [window["hard"] for window in service_status["windows"] if window["window"] == "1h"] == [2]
        assert [is_admitted(installation), is_admitted(installation)] == [True, False]

        assert podgate("override", "web", "--mode", "quota=Audit", "--for", "1h", "--merge", *options).code == 0
        plane.wait(lambda: is_admitted(installation), "the mode to be in force")
        assert podgate("override", "web", "--clear", "--kubeconfig", kubeconfig).code == 0
        plane.wait(lambda: list_in_force(installation) == [[], []], "the override to be gone")
        assert not is_admitted(installation)


def test_override_expires_and_invalid_overrides_change_nothing(plane: ControlPlane, identities: Identities) -> None:
    options = ("--kubeconfig", plane.kubeconfig, "--reason", "INC-1")
    with install_overridable(plane, identities, "overrides-ended") as installation:
        [server] = installation.servers
        assert podgate("override", "web", "--mode", "quota=Audit", "--for", "15s", *options).code == 0
        plane.wait(lambda: list_in_force(installation) == [["web"]], "the override to be in force", server.name)
        assert "denied" in apply_overrides(plane, INVALID)
        plane.kubectl("delete", "validatingwebhookconfiguration", "podgate-policy")
        plane.wait(lambda: "denied" not in apply_overrides(plane, INVALID), "the invalid overrides to be stored")
        errors = plane.wait(lambda: server.status()["overrides"]["errors"], "the errors to be shown", server.name)
        assert errors[0].startswith(f"configmap {NAMESPACE}/{OVERRIDES}: overrides.yaml:1:3: [0]")
        refused = podgate("override", "web", "--quota-factor", "2", "--for", "1h", *options)
        assert (refused.code, "fix what is listed here" in refused.err) == (2, True)
        plane.wait(lambda: list_in_force(installation) == [[]], "the override to end", server.name)
        assert "override ended" in installation.log(server)


def test_invalid_overrides_and_unknown_services_are_denied_at_apply(
    plane: ControlPlane, identities: Identities
) -> None:
    entry = "- {service: SERVICE, modes: {quota: Audit}, until: 2099-01-01T00:00:00Z, reason: INC-1}\n"
    with install_overridable(plane, identities, "overrides-judged") as installation:
        printed = apply_overrides(plane, INVALID)
        assert (
            'admission webhook "policy.podgate.io" denied the request: OverridesInvalid: the overrides have ' in printed
        )
        assert "overrides.yaml:1:3: [0].until: (absent): required: add until" in printed
        printed = apply_overrides(plane, entry.replace("SERVICE", "wob"))
        assert "overrides.yaml: no service 'wob': the policy has web" in printed
        printed = apply_overrides(plane, entry.replace("SERVICE", "web").replace("reason", "by: alice, reason"))
        assert "[0].by: alice: the entry is written by kubernetes-admin: write that name, or leave it out" in printed
        assert "denied" not in apply_overrides(plane, entry.replace("SERVICE", "web"))
        plane.wait(
            lambda: list_in_force(installation) == [["web"]],
            "the override to be in force",
            installation.servers[0].name,
        )
        options = ("--kubeconfig", plane.kubeconfig, "--reason", "INC-2", "--for", "1h")
        stored = read_stored_overrides(plane)
        assert podgate("override", "web", "--quota-factor", "2", "--dry-run", *options).code == 0
        assert read_stored_overrides(plane) == stored
        assert podgate("quota", "grant", "web", "--window", "1h", "--hard", "pods=1", *options).code == 0
        plane.wait(
            lambda: list_in_force(installation) == [["web", "web"]], "both to be in force", installation.servers[0].name
        )
        entries = installation.servers[0].status()["overrides"]["entries"]
        assert [entry.get("by") for entry in entries] == [None, "kubernetes-admin"], "the command records its user"


def test_missing_right_and_unknown_service_are_reported(plane: ControlPlane, identities: Identities) -> None:
    def override(kubeconfig: Path, service: str = "web") -> tuple[int, str]:
        override_options = ("--quota-factor", "2", "--for", "1h", "--reason", "INC-1", "--kubeconfig", kubeconfig)
        done = podgate("override", service, *override_options)
        return done.code, done.err

    with install_overridable(plane, identities, "overrides-rights"):
        code, printed = override(user_kubeconfig(plane, "nobody"))
        assert (code, f"grant the right to get configmaps named {OVERRIDES}" in printed) == (2, True), printed
        code, printed = override(user_kubeconfig(plane, "reader", READ_POLICY, {**CHANGE_OVERRIDES, "verbs": ["get"]}))
        assert (code, f"grant the right to create configmaps named {OVERRIDES}" in printed) == (2, True), printed
        creator = user_kubeconfig(plane, "maker", {**CHANGE_OVERRIDES, "verbs": ["get"]}, CREATE_CONFIG_MAPS)
        code, printed = override(creator)
        assert (code, "warning: not checked against the policy: cannot read" in printed) == (0, True), printed
        code, printed = override(
            user_kubeconfig(plane, "reader", READ_POLICY, {**CHANGE_OVERRIDES, "verbs": ["get"]}), "wob"
        )
        assert (code, printed) == (4, "error: no service 'wob': the policy has web\n")
        assert podgate("override", "web", "--clear", "--kubeconfig", creator).code == 2
        assert podgate("override", "--list", "-o", "json", "--kubeconfig", creator).code == 0


def list_names(installation: Installation, app: str) -> list[str]:
    [space] = installation.namespaces
    found = (pod["metadata"] for pod in installation.pods(space))
    return sorted(metadata["name"] for metadata in found if metadata.get("labels", {}).get("app") == app)


def test_exception_lets_the_pods_of_one_deployment_pass_and_no_others(
    plane: ControlPlane, identities: Identities
) -> None:
    options = ("--kubeconfig", plane.kubeconfig, "--reason", "INC-1", "--for", "1h")
    with install_overridable(plane, identities, "overrides-excepted") as installation:
        [server], [space] = installation.servers, installation.namespaces
        target = ("--workload", "deployments/urgent", "-n", space)
        done = podgate("override", "web", *target, "--mode", "quota=Audit", *options)
        assert done.code == 0, done.err
        plane.wait(lambda: list_in_force(installation) == [["web"]], "the exception to be in force", server.name)
        plane.kubectl("create", "deployment", "urgent", "--image=i", "--replicas=3", "-n", space)
        plane.wait(lambda: len(list_names(installation, "urgent")) == 3, "the Pods of the exception", server.name)
        [service] = server.status()["services"]
        [window] = service["windows"]
        assert (window["used"], window["hard"]) == (3, 1), "they are charged, and the limit is the service's"
        workload = {"namespace": space, "kind": "Deployment", "name": "urgent"}
        assert [entry["workload"] for entry in service["exceptions"]] == [workload]

        urgent = plane.api.get(f"/api/v1/namespaces/{space}/pods/{list_names(installation, 'urgent')[0]}")["metadata"]
        forged = {"name": "forged", "labels": urgent["labels"], "ownerReferences": urgent["ownerReferences"]}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": forged,
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        status, answer = plane.api.request("POST", f"/api/v1/namespaces/{space}/pods", body)
        assert (status, "QuotaExceeded" in answer["message"]) == (429, True), answer
        assert not is_admitted(installation)

        plane.kubectl("rollout", "restart", "deployment/urgent", "-n", space)
        first = urgent["labels"]["pod-template-hash"]
        plane.wait(
            lambda: any(first not in name for name in list_names(installation, "urgent")),
            "a Pod of another ReplicaSet",
            server.name,
        )
        assert podgate("override", "web", *target, "--clear", "--kubeconfig", plane.kubeconfig).code == 0
        plane.wait(lambda: list_in_force(installation) == [[]], "the exception to end", server.name)
        before = list_names(installation, "urgent")
        plane.kubectl("scale", "deployment/urgent", "--replicas=9", "-n", space)
        plane.wait(
            lambda: any(
                "QuotaExceeded" in event.get("message", "")
                for event in plane.api.get(f"/api/v1/namespaces/{space}/events")["items"]
            ),
            "a denial",
            server.name,
        )
        assert set(list_names(installation, "urgent")) <= set(before)


def test_exceptions_for_a_job_a_stateful_set_and_labels(plane: ControlPlane, identities: Identities) -> None:
    options = ("--kubeconfig", plane.kubeconfig, "--mode", "quota=Audit", "--reason", "INC-1", "--for", "1h")
    with install_overridable(plane, identities, "overrides-kinds") as installation:
        [server], [space] = installation.servers, installation.namespaces
        targets = (("--workload", "job/batch"), ("--workload", "sts/db"), ("--pods", "tier in (vip)"))
        for target in targets:
            done = podgate("override", "web", *target, "-n", space, *options)
            assert done.code == 0, done.err
        plane.wait(lambda: list_in_force(installation) == [["web"] * 3], "the exceptions to be in force", server.name)
        assert is_admitted(installation), "it takes the only place"
        for kind in ("Job", "StatefulSet"):
            name = {"Job": "batch", "StatefulSet": "db"}[kind]
            spec = {"parallelism": 2, "completions": 2} if kind == "Job" else {"replicas": 2, "serviceName": "db"}
            spec |= {"podManagementPolicy": "Parallel"} if kind == "StatefulSet" else {}
            made = workload(kind, name, {}, **spec)
            made["metadata"]["namespace"] = space
            plane.apply(made)
            plane.wait(lambda name=name: len(list_names(installation, name)) == 2, f"the Pods of {name}", server.name)
        assert [installation.create_pod(space, labels={"tier": tier})[0] for tier in ("vip", "vip", "other")] == [
            201,
            201,
            429,
        ]
