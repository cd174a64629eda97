"""Teams on a real API server: Namespaces of one label share a quota, and only admins change the label."""

import itertools
import json
from pathlib import Path
from typing import Any

from tests.cli.command_runner import podgate
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.install import Cluster, cluster
from tests.cluster.installation import MANIFESTS, Installation, install_podgate

__all__ = ["cluster"]

SPACES = ("team-shop", "team-bank", "team-lab", "team-new")
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: ["team-*"]}
  failureMode: Closed
  quota: {per: {namespaceLabel: podgate-team}, windows: [{window: 1h, hard: {pods: 2}}]}
"""
KEY = "podgate-team"


def create(installation: Installation, namespace: str) -> str:
    """Create a Pod; return the message of its denial, "" if it was admitted."""
    status, answer = installation.create_pod(namespace)
    return "" if status == 201 else str(answer["message"])


def label(plane: ControlPlane, namespace: str, *labels: str, kubeconfig: Path | None = None) -> str:
    """Label a Namespace; return what kubectl prints."""
    config = ("--kubeconfig", str(kubeconfig)) if kubeconfig else ()
    done = plane.kubectl("label", "namespace", namespace, "--overwrite", *labels, *config, check=False)
    return done.stdout + done.stderr


def test_namespaces_of_a_team_share_one_quota(plane: ControlPlane, identities: Identities) -> None:
    with install_podgate(plane, identities.files, POLICY, SPACES) as installation:
        for namespace, team in zip(SPACES, ("red", "red", "blue"), strict=False):
            label(plane, namespace, f"{KEY}={team}")
        installation.wait_for_calls()
        plane.wait(
            lambda: [create(installation, namespace) for namespace in SPACES[:2]] == ["", ""] or None,
            "both namespaces to be known",
        )
        denied = create(installation, "team-bank")
        assert f"pods in 1h: hard 2, used 2, asked 1 ({KEY}=red); could pass from" in denied
        assert not create(installation, "team-lab")
        assert not create(installation, "team-new")
        [server] = installation.servers
        service = server.status()["services"][0]
        used = {limit["team"]: limit["used"] for limit in service["windows"]}
        assert used == {"(none)": 1, "blue": 1, "red": 2}
        assert server.total("podgate_quota_used", 'team="red"', 'namespace=""') == 2
        assert "1h red" in podgate("status", "--server", f"http://{server.plain}", "-o", "table").out

        label(plane, "team-bank", f"{KEY}=blue")
        plane.wait(lambda: not create(installation, "team-bank") or None, "the new team to be known")
        assert f"({KEY}=blue)" in create(installation, "team-bank")
        used = {limit["team"]: limit["used"] for limit in server.status()["services"][0]["windows"]}
        assert used == {"(none)": 1, "blue": 2, "red": 2}, "what was charged stays"


def make_user(plane: ControlPlane, name: str, *rules: dict[str, Any]) -> Path:
    """Return the kubeconfig of a user who manages Namespaces, with these further rights."""
    namespaces = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "create", "update", "patch"]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    plane.apply(
        {**role, "kind": "ClusterRole", "rules": [namespaces, *rules]},
        {**role, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]},
    )
    return plane.write_kubeconfig(name)


def test_only_who_may_update_team_labels_changes_them(plane: ControlPlane) -> None:
    plane.create_namespace(NAMESPACE)
    plane.create_namespace("guarded", team="red")
    tenant = make_user(plane, "tenant")
    admin = make_user(
        plane, "team-admin", {"apiGroups": ["podgate.io"], "resources": ["teamlabels"], "verbs": ["update"]}
    )
    plane.apply_file(MANIFESTS / "team-labels" / "45-team-labels.yaml")
    try:
        numbers = itertools.count()

        def is_refused() -> str | None:
            found = label(plane, "guarded", f"team=blue-{next(numbers)}", kubeconfig=tenant)  # a change each time
            return found if "Forbidden" in found else None

        refused = plane.wait(is_refused, "the policy to be in force")
        assert "metadata.labels[team]: decides whose quota the Namespace guarded uses: ask an admin" in refused
        assert "Forbidden" in label(plane, "guarded", "team-", kubeconfig=tenant)
        assert "Forbidden" in create_namespace(plane, tenant, "stolen", team="red")
        assert "labeled" in label(plane, "guarded", "other=1", kubeconfig=tenant)
        assert "created" in create_namespace(plane, tenant, "free", other="1")
        assert "labeled" in label(plane, "guarded", "team=green", kubeconfig=admin)
        assert "created" in create_namespace(plane, admin, "given", team="red")
        plane.kubectl("annotate", "namespace", "guarded", "--overwrite", "a=b")
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            plane.kubectl("delete", kind, "podgate-team-labels")
        plane.kubectl("delete", "configmap", "podgate-team-labels", "-n", NAMESPACE)
        plane.kubectl("delete", "namespace", "guarded", "free", "given", "--wait=false", "--ignore-not-found")


def create_namespace(plane: ControlPlane, kubeconfig: Path, name: str, **labels: str) -> str:
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    command = ("create", "-f", "-", "--kubeconfig", str(kubeconfig))
    done = plane.kubectl(*command, input=json.dumps(document), check=False)
    return done.stdout + done.stderr


def test_install_protects_the_labels_that_it_is_given(cluster: Cluster) -> None:
    flags = ("--team-label", "team", "--team-label", "example.com/owner")
    done = cluster.install(*flags, "--dry-run")
    assert done.code == 0, done.err
    assert "validatingadmissionpolicy.admissionregistration.k8s.io/podgate-team-labels" in done.out
    assert "validatingadmissionpolicybinding.admissionregistration.k8s.io/podgate-team-labels" in done.out
    wrong = cluster.install("--team-label", "a team", "--dry-run")
    assert (wrong.code, "--team-label 'a team': not a label key" in wrong.err) == (2, True)
