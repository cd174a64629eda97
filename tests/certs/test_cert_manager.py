"""The objects for cert-manager fit what reads their Secrets. cert-manager itself does not run here."""

from pathlib import Path
from typing import Any

import yaml

from certs.authority import server_names
from certs.injection import CERTIFICATE
from certs.keeping import CLIENT, SERVING, Plan
from certs.vault import NAMESPACE

MANIFESTS = Path(__file__).parents[2] / "manifests"


def objects(path: str) -> dict[str, dict[str, Any]]:
    found = yaml.safe_load_all((MANIFESTS / path).read_text())
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in found}


def test_the_secrets_are_those_that_the_server_mounts_and_the_api_server_is_given() -> None:
    certificates = {name: one for name, one in objects("cert-manager/60-certificates.yaml").items() if "Cert" in name}
    serving, caller = (
        certificates["Certificate/podgate-serving"]["spec"],
        certificates["Certificate/podgate-apiserver"]["spec"],
    )
    assert (serving["secretName"], caller["secretName"]) == (SERVING, CLIENT)
    assert serving["dnsNames"] == [name.value for name in server_names(f"podgate.{NAMESPACE}.svc")]
    assert caller["commonName"] == Plan.__dataclass_fields__["client_name"].default
    assert ("server auth" in serving["usages"], "client auth" in caller["usages"]) == (True, True)
    pod = objects("30-deployment.yaml")["Deployment/podgate"]["spec"]["template"]["spec"]
    assert {"secretName": SERVING, "defaultMode": 0o440} in [volume.get("secret") for volume in pod["volumes"]]


def test_the_ca_keeps_its_key_for_the_injector_publishes_only_one() -> None:
    found = objects("cert-manager/60-certificates.yaml")
    assert found["Certificate/podgate-ca"]["spec"]["privateKey"]["rotationPolicy"] == "Never"
    kind, name = "Certificate", CERTIFICATE.removeprefix(f"{NAMESPACE}/")
    assert f"{kind}/{name}" in found
    for one in found.values():
        issuer = one["spec"].get("issuerRef")
        assert issuer is None or f"{issuer['kind']}/{issuer['name']}" in found


def test_its_leaves_live_as_long_as_ours_and_are_renewed_as_early() -> None:
    for name in ("serving", "apiserver"):
        spec = objects("cert-manager/60-certificates.yaml")[f"Certificate/podgate-{name}"]["spec"]
        hours, before = (int(spec[key].removesuffix("h")) for key in ("duration", "renewBefore"))
        assert (hours, hours / before) == (336, 3)
