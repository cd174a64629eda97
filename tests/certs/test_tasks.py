"""Tasks of the leader over virtual time: a failed task does not block the others."""

import base64
import json
from pathlib import Path

import pytest
from cryptography import x509

from certs import ca_generations
from certs.authority import Authority
from certs.cluster.ca_controller import CaController
from certs.cluster.port_switch import PortCleanup, PortSwitch
from certs.cluster.secrets import LABELS
from certs.cluster.token_controller import TokenController
from certs.cluster.trust_domain import parse_certificates
from certs.cluster.webhooks import CONFIGURATIONS
from certs.inspection import is_signed_by
from certs.token_issuer import build_jwk, encode_key, format_key_set, new_key, sign
from certs.token_rotation import Issuer
from tests.certs.memory_objects import CONFIG_MAPS, DAY, GROUP, PLAN, SECRETS, START, Objects, expiry, settle
from webhook.app.certificates import list_tasks
from webhook.settings import ControllerSettings
from webhook.settings.parsing import parse_as

ISSUER = Issuer("https://podgate", "podgate", "kube-apiserver", "kube-apiserver", 3600, 86400)


TASKS = (CaController(PLAN), PortSwitch((443, 444)))


async def make_managed_cluster() -> Objects:
    """Return a cluster after the first round of the CA controller."""
    api = Objects()
    await settle(api, [CaController(PLAN)], START)
    return api


# --- certificates ---


@pytest.mark.parametrize("fault", ["foreign", "corrupt"])
async def test_serving_certificate_is_renewed_despite_errors_of_the_client_ca(fault: str) -> None:
    api = await make_managed_cluster()
    if fault == "foreign":
        api.remove_label("podgate-client-ca")
    else:
        api.change("podgate-client-ca", {"line.json": b"{"})
    actions, errors = await settle(api, [CaController(PLAN)], START + 13 * DAY)
    assert any("podgate-tls: issued by" in text for text in actions)
    assert [text for text in errors if "podgate-client-ca" in text]


async def test_client_certificate_is_renewed_despite_a_foreign_serving_secret() -> None:
    api = await make_managed_cluster()
    api.remove_label("podgate-tls")
    before = api.read_stored(f"{SECRETS}/podgate-tls")
    actions, errors = await settle(api, [CaController(PLAN)], START + 13 * DAY)
    assert any("podgate-apiserver: issued by" in text for text in actions)
    assert [text for text in errors if "podgate-tls is there without the label" in text]
    assert api.read_stored(f"{SECRETS}/podgate-tls") == before


@pytest.mark.parametrize("url", ["https://[foo]/mutate", "https://ex\u2100mple.com/x", "https:///mutate"])
async def test_invalid_webhook_url_is_an_error_and_everything_else_is_done(url: str) -> None:
    api = Objects()
    path = f"{GROUP}/{CONFIGURATIONS[0]}"
    configuration = api.read_stored(path)
    configuration["webhooks"].append({"name": "b.podgate.io", "clientConfig": {"url": url, "caBundle": ""}})
    api.put(path, configuration)
    actions, errors = await settle(api, [CaController(PLAN)], START)
    assert any("podgate-tls: issued by" in text for text in actions)
    assert [text for text in errors if f"{CONFIGURATIONS[0]}: webhook b.podgate.io: url" in text]


async def test_cas_of_other_clients_stay_trusted_while_named() -> None:
    other = Authority.create("reporters", now=START).key_pair.certificate
    api = await make_managed_cluster()
    api.change("podgate-tls", {"others-ca.crt": ca_generations.encode_pem(other)})
    all_cas: set[x509.Certificate] = set()
    for day in range(0, 2 * 365, 2):
        await settle(api, [CaController(PLAN)], START + day * DAY)
        trusted = parse_certificates(api.secret("podgate-tls")["ca.crt"])
        assert other in trusted
        assert any(
            is_signed_by(x509.load_pem_x509_certificate(api.secret("podgate-apiserver")["tls.crt"]), ca)
            for ca in trusted
        )
        all_cas |= trusted
        assert len(trusted) <= 4
    assert len(all_cas) >= 3, "the managed CA was rotated twice"
    assert other not in parse_certificates(api.secret("podgate-tls")["serving-ca.crt"])
    api.change("podgate-tls", {"ca.crt": ca_generations.encode_pem(*(ca for ca in trusted if ca != other))})
    await settle(api, [CaController(PLAN)], START + 2 * 365 * DAY)
    assert other in parse_certificates(api.secret("podgate-tls")["ca.crt"])
    api.change("podgate-tls", {"others-ca.crt": None})
    await settle(api, [CaController(PLAN)], START + 2 * 365 * DAY)
    assert other not in parse_certificates(api.secret("podgate-tls")["ca.crt"])


async def test_certificate_of_another_ca_is_used_until_the_managed_one_has_settled() -> None:
    manual_authority = Authority.create("by-hand", now=START)
    other = ca_generations.encode_pem(manual_authority.key_pair.certificate)
    leaf = manual_authority.issue_client("kube-apiserver", lifetime=14 * DAY, now=START)
    manual_secret = {"tls.crt": ca_generations.encode_pem(leaf.certificate), "tls.key": encode_key(leaf.key)}
    api = await make_managed_cluster()
    api.change("podgate-client-ca", {"line.json": None})
    api.change("podgate-tls", {"ca.crt": other, "others-ca.crt": other})
    api.change("podgate-apiserver", manual_secret)
    actions, _ = await settle(api, [CaController(PLAN)], START)
    assert actions[0].startswith("podgate-client-ca: adopted")
    assert api.secret("podgate-apiserver")["tls.crt"] == manual_secret["tls.crt"]
    await settle(api, [CaController(PLAN)], START + DAY)
    assert api.secret("podgate-apiserver")["tls.crt"] != manual_secret["tls.crt"]
    await settle(api, [CaController(PLAN)], START + 20 * DAY)
    assert manual_authority.key_pair.certificate in parse_certificates(api.secret("podgate-tls")["ca.crt"])
    assert other not in api.secret("podgate-client-ca")["ca.crt"]


async def test_unreadable_other_cas_keep_the_trusted_ones() -> None:
    other = Authority.create("reporters", now=START).key_pair.certificate
    api = await make_managed_cluster()
    api.change("podgate-tls", {"others-ca.crt": ca_generations.encode_pem(other)})
    await settle(api, [CaController(PLAN)], START)
    api.change("podgate-tls", {"others-ca.crt": b"-----BEGIN CERTIFICATE-----\nx"})
    actions, errors = await settle(api, [CaController(PLAN)], START + 13 * DAY)
    assert any("podgate-apiserver: issued by" in text for text in actions)
    assert other in parse_certificates(api.secret("podgate-tls")["ca.crt"])
    [text] = errors
    assert text.startswith("Secret podgate-system/podgate-tls: others-ca.crt: holds no certificates in PEM")


# --- tokens ---


@pytest.mark.parametrize("line_ending", [b"", b"\n", b"\r\n"])
async def test_key_of_a_manually_issued_token_is_adopted_whatever_its_line_ending(line_ending: bytes) -> None:
    api = await make_managed_cluster()
    key, now = new_key("ES256"), int(START.timestamp())
    jwk = build_jwk(key.public_key())
    token = sign(key, {**ISSUER.build_claims(now), "exp": now + 86400})
    metadata = {"name": "podgate-jwks", "labels": LABELS}
    api.put(f"{CONFIG_MAPS}/podgate-jwks", {"metadata": metadata, "data": {"jwks.json": format_key_set([jwk])}})
    api.change("podgate-apiserver", {"token": token.encode() + line_ending})
    actions, _ = await settle(api, [TokenController(ISSUER)], START)
    assert actions[0] == f"podgate-token-keys: adopted key {jwk['kid']}: it has signed the token in use"
    published = json.loads(api.read_stored(f"{CONFIG_MAPS}/podgate-jwks")["data"]["jwks.json"])["keys"]
    assert len(published) == 2
    assert {task["iss"] for task in published} == {"https://podgate"}
    assert base64.b64decode(api.read_stored(f"{SECRETS}/podgate-apiserver")["data"]["token"]).strip() == token.encode()


# --- ports ---


async def test_webhooks_at_a_port_with_a_changed_certificate_are_switched_back() -> None:
    api, tasks = await make_managed_cluster(), TASKS
    await settle(api, tasks, START)
    now, actions = START + 13 * DAY, list[str]()
    while not any("port 443: renewed while the port is not in use" in text for text in actions):
        now += DAY / 8640
        actions, _ = await settle(api, tasks, now)
    assert api.ports == {444}
    api.set_port(443)
    await settle(api, tasks, now)
    assert api.ports == {444}
    assert expiry(api.secret("podgate-apiserver")["first.pem"]) > now + 10 * DAY


async def test_removed_ports_leave_no_certificates() -> None:
    api = await make_managed_cluster()
    await settle(api, TASKS, START)
    assert {"first.pem", "second.pem", "doors.json"} < set(api.secret("podgate-apiserver"))
    actions, _ = await settle(api, [CaController(PLAN), PortCleanup()], START)
    assert actions == ["podgate-apiserver: removed the certificates per port"]
    assert set(api.secret("podgate-apiserver")) == {"tls.crt", "tls.key", "ca.crt"}
    assert await settle(api, [PortCleanup()], START) == ([], [])
    api.remove_label("podgate-apiserver")
    assert len((await settle(api, [PortCleanup()], START))[1]) == 1


async def test_unreadable_configuration_does_not_block_the_unused_port() -> None:
    api = await make_managed_cluster()
    await settle(api, TASKS, START)
    api.unreadable.add(f"{GROUP}/{CONFIGURATIONS[2]}")
    now = START
    while now < START + 13 * DAY:
        now += DAY / 24
        _, errors = await settle(api, TASKS, now)
        assert len(set(errors)) == 1
    secret = api.secret("podgate-apiserver")
    assert secret["second.pem"] == secret["tls.crt"] + secret["tls.key"]
    assert expiry(secret["second.pem"]) > expiry(secret["first.pem"])
    assert api.ports == {443}, "the unreadable configuration may use this port"


async def test_port_of_an_unreadable_configuration_is_left_unchanged() -> None:
    api = await make_managed_cluster()
    api.set_port(444)
    await settle(api, TASKS, START)
    api.unreadable.add(f"{GROUP}/{CONFIGURATIONS[2]}")
    api.set_port(443)
    before = api.secret("podgate-apiserver")["second.pem"]
    for hour in range(13 * 24):
        await settle(api, TASKS, START + hour * DAY / 24)
    assert api.secret("podgate-apiserver")["tls.crt"] not in before, "it was renewed"
    assert api.secret("podgate-apiserver")["second.pem"] == before


@pytest.mark.parametrize("ports", [None, "443,444"])
def test_controller_removes_certificates_of_absent_ports(tmp_path: Path, ports: str | None) -> None:
    (tmp_path / "kubeconfig").write_text("{}")
    flags = {"certificates": "own", "kubeconfig": str(tmp_path / "kubeconfig"), "caller_ports": ports}
    types = [type(task) for task in list_tasks(parse_as(ControllerSettings, flags, {}))]
    assert types == [CaController, PortSwitch if ports else PortCleanup]
