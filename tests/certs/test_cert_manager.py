"""The objects for cert-manager match the readers of their Secrets. cert-manager itself does not run here."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from certs.authority import list_server_names
from certs.cluster.ca_controller import CLIENT, SERVING, CertificatePlan
from certs.cluster.injection import CERTIFICATE
from certs.cluster.secrets import NAMESPACE
from certs.cluster.webhooks import CONFIGURATIONS

MANIFESTS = Path(__file__).parents[2] / "manifests"


def objects(path: str) -> dict[str, dict[str, Any]]:
    documents = yaml.safe_load_all((MANIFESTS / path).read_text())
    return {f"{document['kind']}/{document['metadata']['name']}": document for document in documents}


def test_cert_manager_secrets_are_those_of_server_and_api_server() -> None:
    certificates = {
        name: document for name, document in objects("cert-manager/60-certificates.yaml").items() if "Cert" in name
    }
    serving, caller = (
        certificates["Certificate/podgate-serving"]["spec"],
        certificates["Certificate/podgate-apiserver"]["spec"],
    )
    assert (serving["secretName"], caller["secretName"]) == (SERVING, CLIENT)
    assert serving["dnsNames"] == [name.value for name in list_server_names(f"podgate.{NAMESPACE}.svc")]
    assert caller["commonName"] == CertificatePlan.__dataclass_fields__["client_name"].default
    assert ("server auth" in serving["usages"], "client auth" in caller["usages"]) == (True, True)
    pod = objects("base/30-deployment.yaml")["Deployment/podgate"]["spec"]["template"]["spec"]
    assert {"secretName": SERVING, "defaultMode": 0o440} in [volume.get("secret") for volume in pod["volumes"]]


def test_ca_keeps_its_key_because_the_injector_publishes_one_ca() -> None:
    documents = objects("cert-manager/60-certificates.yaml")
    assert documents["Certificate/podgate-ca"]["spec"]["privateKey"]["rotationPolicy"] == "Never"
    kind, name = "Certificate", CERTIFICATE.removeprefix(f"{NAMESPACE}/")
    assert f"{kind}/{name}" in documents
    for document in documents.values():
        issuer = document["spec"].get("issuerRef")
        assert issuer is None or f"{issuer['kind']}/{issuer['name']}" in documents


def test_leader_has_no_rights_but_to_get_and_patch_the_three_configurations() -> None:
    granted = {**objects("base/11-rbac-webhooks.yaml"), **objects("redis/12-rbac-webhooks.yaml")}
    role = granted.pop("ClusterRole/podgate-webhooks")
    allowed = {
        f"{kind}/{name}" for rule in role["rules"] for kind in rule["resources"] for name in rule["resourceNames"]
    }
    assert allowed == set(CONFIGURATIONS)
    assert [rule["verbs"] for rule in role["rules"]] == [["get", "patch"]] * 2
    assert {document["roleRef"]["name"] for document in granted.values()} == {"podgate-webhooks"}
    assert [document["subjects"][0]["name"] for document in granted.values()] == ["podgate", "podgate-controller"]
    assert {name.partition("/")[0] for name in granted} == {"ClusterRoleBinding"}


@pytest.mark.parametrize("folder", ["certificates", "certificates-in-memory"])
def test_every_role_in_a_folder_is_applied_by_its_kustomization(folder: str) -> None:
    resources = yaml.safe_load((MANIFESTS / folder / "kustomization.yaml").read_text())["resources"]
    assert [path for path in resources if "/" not in path] == sorted(
        path.name for path in (MANIFESTS / folder).glob("1*")
    )


def test_cert_manager_leaves_have_the_default_lifetime_and_renewal() -> None:
    for name in ("serving", "apiserver"):
        spec = objects("cert-manager/60-certificates.yaml")[f"Certificate/podgate-{name}"]["spec"]
        hours, renew_before = (int(spec[key].removesuffix("h")) for key in ("duration", "renewBefore"))
        assert (hours, hours / renew_before) == (336, 3)
