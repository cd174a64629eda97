"""The effects of faults on the cluster's objects, and on the identities of its parts."""

from collections.abc import Mapping
from typing import Any

import yaml

from certs.authority import list_server_names
from certs.files import write_key_pair
from tests.chaos.effect import Build, Effect
from tests.chaos.history import PlannedFault
from tests.chaos.lab import RIGHTS, Lab
from tests.cluster.admission_configuration import NAMESPACE, SERVICE_HOST
from tests.cluster.installation import LEASE

_LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}"
_MERGE = "application/merge-patch+json"
_TIMEOUT_SECONDS = 10.0
_ADMISSION = "admissionregistration.k8s.io/v1"
_POLICIES = {
    "ValidatingAdmissionPolicy": f"/apis/{_ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"/apis/{_ADMISSION}/validatingadmissionpolicybindings",
}
_EVEN_NAME = "!has(object.metadata.generateName) || !object.metadata.name.matches('[0-9bdfhjlnprtvxz]$')"
"""About half of the names that the API server makes are refused by it."""


def _take_lease(lab: Lab, _: PlannedFault) -> Effect:
    """Write another holder into the Lease, as a controller does that believes the former one to be gone."""

    def begin() -> None:
        renewed = lab.plane.api.get(_LEASE)["spec"]["renewTime"]
        holder = {"holderIdentity": "somebody-else", "acquireTime": renewed, "renewTime": renewed}
        _ask(lab, "PATCH", _LEASE, {"spec": holder}, _MERGE)

    return Effect(begin)


def _deny(lab: Lab, fault: PlannedFault) -> Effect:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": fault.details["namespace"]}}
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": selector},
        "validations": [{"expression": _EVEN_NAME, "message": "another policy denies this Pod"}],
    }
    name = f"chaos-{fault.number}"
    specs = (policy, {"policyName": name, "validationActions": ["Deny"]})

    def begin() -> None:
        for (kind, path), spec in zip(_POLICIES.items(), specs, strict=True):
            body = {"apiVersion": _ADMISSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
            _ask(lab, "POST", path, body)

    def heal() -> None:
        for path in _POLICIES.values():
            _delete(lab, f"{path}/{name}")

    return Effect(begin, heal)


def _remove_right(lab: Lab, fault: PlannedFault) -> Effect:
    """Delete the bindings of an account to roles of the cluster, as a hand does that tidies up."""
    account = fault.details["account"]
    documents = [document for path in RIGHTS for document in yaml.safe_load_all(path.read_text()) if document]
    names = {
        document["metadata"]["name"]
        for document in documents
        if document["kind"] == "ClusterRoleBinding"
        and any(subject["name"] == account for subject in document["subjects"])
    }
    assert names, f"no ClusterRoleBinding names {account}"

    def begin() -> None:
        for name in names:
            _delete(lab, f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}")

    return Effect(begin, lab.apply_rights)


def _rotate_certificate(lab: Lab, _: PlannedFault) -> Effect:
    """Issue the serving certificate again, by the same CA; the servers read the files within seconds."""

    def begin() -> None:
        pki = lab.identities.files.pki
        names = (*list_server_names("localhost"), *list_server_names("127.0.0.1"), *list_server_names(SERVICE_HOST))
        leaf = pki.authority.issue_server(SERVICE_HOST, names)
        write_key_pair(leaf, pki.paths.certificate, pki.paths.key, replace=True)

    return Effect(begin)


def _rotate_token(lab: Lab, fault: PlannedFault) -> Effect:
    return Effect(lambda: lab.write_kubeconfig(fault.parts[0]))


def _revoke_token(lab: Lab, fault: PlannedFault) -> Effect:
    name = fault.parts[0]
    return Effect(lambda: lab.write_kubeconfig(name, token="revoked"), lambda: lab.write_kubeconfig(name))


def _ask(lab: Lab, method: str, path: str, body: Any = None, content_type: str = "application/json") -> None:
    status, answer = lab.plane.api.request(method, path, body, content_type, _TIMEOUT_SECONDS)
    if status >= 300:
        raise OSError(f"{method} {path}: {status}: {answer}")


def _delete(lab: Lab, path: str) -> None:
    status, answer = lab.plane.api.request("DELETE", path, timeout_seconds=_TIMEOUT_SECONDS)
    if status >= 300 and status != 404:
        raise OSError(f"DELETE {path}: {status}: {answer}")


BUILDS: Mapping[str, Build] = {
    "lease-taken": _take_lease,
    "other-webhook-denies": _deny,
    "right-removed": _remove_right,
    "certificate-rotated": _rotate_certificate,
    "token-rotated": _rotate_token,
    "token-revoked": _revoke_token,
}
"""By the kind of `fault_kinds`."""
