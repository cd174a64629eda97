"""Access to a running cluster: kubectl, plain requests, and a kubeconfig for any user."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cluster.api import Api
from tests.cluster.certificates import ClusterAuthority
from tests.cluster.components import Ports, kubeconfig, write_json
from tests.cluster.go_programs import NO_COLLECTIONS
from tests.harness.yaml_documents import parse_documents

_RBAC, _ADMISSION = "rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1"
_RESOURCES = {
    "v1/Namespace": "/api/v1/namespaces",
    "v1/Node": "/api/v1/nodes",
    "v1/ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "v1/Secret": "/api/v1/namespaces/{namespace}/secrets",
    "v1/Service": "/api/v1/namespaces/{namespace}/services",
    "v1/ResourceQuota": "/api/v1/namespaces/{namespace}/resourcequotas",
    "v1/LimitRange": "/api/v1/namespaces/{namespace}/limitranges",
    "v1/ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    f"{_RBAC}/ClusterRole": f"/apis/{_RBAC}/clusterroles",
    f"{_RBAC}/ClusterRoleBinding": f"/apis/{_RBAC}/clusterrolebindings",
    f"{_RBAC}/Role": f"/apis/{_RBAC}/namespaces/{{namespace}}/roles",
    f"{_RBAC}/RoleBinding": f"/apis/{_RBAC}/namespaces/{{namespace}}/rolebindings",
    f"{_ADMISSION}/MutatingWebhookConfiguration": f"/apis/{_ADMISSION}/mutatingwebhookconfigurations",
    f"{_ADMISSION}/ValidatingWebhookConfiguration": f"/apis/{_ADMISSION}/validatingwebhookconfigurations",
    **{
        f"apps/v1/{kind}": f"/apis/apps/v1/namespaces/{{namespace}}/{kind.lower()}s"
        for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
    },
    **{f"batch/v1/{kind}": f"/apis/batch/v1/namespaces/{{namespace}}/{kind.lower()}s" for kind in ("Job", "CronJob")},
    "policy/v1/PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "scheduling.k8s.io/v1/PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "node.k8s.io/v1/RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
}
"""Path of the objects of each kind."""


class Access:
    """The part of a ControlPlane that accesses its API server."""

    folder: Path
    ports: Ports
    authority: ClusterAuthority
    api: Api
    """Plain requests as the administrator."""
    kubeconfig: Path
    """Kubeconfig of the administrator, O=system:masters."""
    _kubectl: Path

    def _grant_access(self, ports: Ports) -> None:
        self.ports = ports
        certificate, key = self.authority.user("kubernetes-admin", "system:masters")
        self.api = Api.create(ports.apiserver, self.authority.certificate, certificate, key)
        user = {"client-certificate": str(certificate), "client-key": str(key)}
        document = kubeconfig(self.server, self.authority.certificate, user)
        self.kubeconfig = write_json(self.folder / "admin.kubeconfig", document)

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.ports.apiserver}"

    def write_kubeconfig(self, name: str, *groups: str, token: str | None = None, server: str | None = None) -> Path:
        """Return a kubeconfig of a user: by a certificate (CN and O), or by a bearer token if one is given.

        `server` is the URL of a load balancer in front of the API server.
        """
        if token is None:
            certificate, key = self.authority.user(name, *groups)
            user = {"client-certificate": str(certificate), "client-key": str(key)}
        else:
            user = {"token": token}
        parts = (name, *groups, "token" if token else "", (server or "").rpartition(":")[2])
        stem = "-".join(part for part in parts if part).replace(":", "-").replace("/", "-")
        path = self.folder / f"{stem}.kubeconfig"
        return write_json(path, kubeconfig(server or self.server, self.authority.certificate, user))

    def kubectl(
        self,
        *arguments: str,
        input: str | None = None,  # noqa: A002 - as subprocess.run calls it
        check: bool = True,
        kubeconfig: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator, or with the given kubeconfig."""
        variables = {"KUBECONFIG": str(kubeconfig or self.kubeconfig), "HOME": str(self.folder), "PATH": os.defpath}
        variables |= NO_COLLECTIONS
        done = subprocess.run(
            [self._kubectl, *arguments], input=input, env=variables, check=False, capture_output=True, text=True
        )
        failure = f"kubectl {' '.join(arguments)} exited with {done.returncode}: {done.stderr}{done.stdout}"
        assert done.returncode == 0 or not check, failure
        return done

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply objects server-side as the administrator, without a kubectl process for most kinds."""
        for document in objects:
            resource = _RESOURCES.get(f"{document['apiVersion']}/{document['kind']}")
            if resource is None:
                self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(document))
                continue
            metadata = document["metadata"]
            path = f"{resource.format(namespace=metadata.get('namespace', 'default'))}/{metadata['name']}"
            query = "fieldManager=kubectl&force=true"
            status, response = self.api.request("PATCH", f"{path}?{query}", document, "application/apply-patch+yaml")
            assert status in {200, 201}, f"apply {path}: {status}: {response}"

    def apply_file(self, path: Path) -> None:
        """Apply all objects of a manifest as the administrator."""
        self.apply(*parse_documents(path.read_text()))

    def delete(self, *paths: str) -> None:
        """Delete the object or collection at each path without waiting; ignore absent ones."""
        for path in paths:
            status, response = self.api.request("DELETE", path)
            assert status in {200, 202, 404, 409}, f"DELETE {path}: {status}: {response}"

    def may(self, user: str, verb: str, resource: str, namespace: str = "", subresource: str = "") -> bool:
        """Whether a user may do something to RESOURCE[.GROUP][/NAME], by default in all namespaces.

        It is the question of `kubectl auth can-i --as`, without a process.
        """
        kind, _, name = resource.partition("/")
        plural, _, group = kind.partition(".")
        asked = {"verb": verb, "group": group, "resource": plural, "subresource": subresource, "name": name}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {**asked, "namespace": namespace}},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        status, response = self.api.request("POST", path, review, user=user)
        assert status == 201, f"POST {path}: {status}: {response}"
        return bool(response["status"]["allowed"])

    def create_token(self, account: str, namespace: str) -> str:
        """Return a token of a service account for the API server, as `kubectl create token` does."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        status, response = self.api.request("POST", path, request)
        assert status == 201, f"POST {path}: {status}: {response}"
        return str(response["status"]["token"])
