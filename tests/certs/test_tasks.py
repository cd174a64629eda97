"""The leader's tasks over virtual time: a failed one does not prevent the others."""

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
from certs.cluster.trust_domain import certificates
from certs.cluster.webhooks import CONFIGURATIONS
from certs.inspection import signed_by
from certs.tokens.issuer import key_pem, key_set, new_key, public_jwk, sign
from certs.tokens.rotation import Issuer
from tests.certs.memory_objects import CONFIG_MAPS, DAY, GROUP, PLAN, SECRETS, START, Objects, expiry, settle
from webhook.app.certificates import tasks_of
from webhook.settings import ControllerSettings
from webhook.settings.parsing import parse_as

ISSUER = Issuer("https://podgate", "podgate", "kube-apiserver", "kube-apiserver", 3600, 86400)


DUTIES = (CaController(PLAN), PortSwitch((443, 444)))


async def kept() -> Objects:
    """Return a cluster with all that is kept."""
    api = Objects()
    await settle(api, [CaController(PLAN)], START)
    return api


# --- certificates ---


@pytest.mark.parametrize("fault", ["foreign", "corrupt"])
async def test_serving_certificate_is_renewed_despite_errors_of_the_client_ca(fault: str) -> None:
    api = await kept()
    if fault == "foreign":
        api.disown("podgate-client-ca")
    else:
        api.change("podgate-client-ca", {"line.json": b"{"})
    did, troubles = await settle(api, [CaController(PLAN)], START + 13 * DAY)
    assert any("podgate-tls: issued by" in text for text in did)
    assert [text for text in troubles if "podgate-client-ca" in text]


async def test_client_certificate_is_renewed_despite_a_foreign_serving_secret() -> None:
    api = await kept()
    api.disown("podgate-tls")
    before = api.whole(f"{SECRETS}/podgate-tls")
    did, troubles = await settle(api, [CaController(PLAN)], START + 13 * DAY)
    assert any("podgate-apiserver: issued by" in text for text in did)
    assert [text for text in troubles if "podgate-tls is there without the label" in text]
    assert api.whole(f"{SECRETS}/podgate-tls") == before


@pytest.mark.parametrize("url", ["https://[foo]/mutate", "https://ex\u2100mple.com/x", "https:///mutate"])
async def test_invalid_webhook_url_is_an_error_and_everything_else_is_done(url: str) -> None:
    api = Objects()
    path = f"{GROUP}/{CONFIGURATIONS[0]}"
    whole = api.whole(path)
    whole["webhooks"].append({"name": "b.podgate.io", "clientConfig": {"url": url, "caBundle": ""}})
    api.put(path, whole)
    did, troubles = await settle(api, [CaController(PLAN)], START)
    assert any("podgate-tls: issued by" in text for text in did)
    assert [text for text in troubles if f"{CONFIGURATIONS[0]}: webhook b.podgate.io: url" in text]


async def test_cas_of_other_clients_stay_trusted_while_named() -> None:
    other = Authority.create("reporters", now=START).key_pair.certificate
    api = await kept()
    api.change("podgate-tls", {"others-ca.crt": ca_generations.pem(other)})
    seen: set[x509.Certificate] = set()
    for day in range(0, 2 * 365, 2):
        await settle(api, [CaController(PLAN)], START + day * DAY)
        trusted = certificates(api.secret("podgate-tls")["ca.crt"])
        assert other in trusted
        assert any(
            signed_by(x509.load_pem_x509_certificate(api.secret("podgate-apiserver")["tls.crt"]), ca) for ca in trusted
        )
        seen |= trusted
        assert len(trusted) <= 4
    assert len(seen) >= 3, "CAs come and go beside it"
    assert other not in certificates(api.secret("podgate-tls")["serving-ca.crt"])
    api.change("podgate-tls", {"ca.crt": ca_generations.pem(*(ca for ca in trusted if ca != other))})
    await settle(api, [CaController(PLAN)], START + 2 * 365 * DAY)
    assert other in certificates(api.secret("podgate-tls")["ca.crt"])
    api.change("podgate-tls", {"others-ca.crt": None})
    await settle(api, [CaController(PLAN)], START + 2 * 365 * DAY)
    assert other not in certificates(api.secret("podgate-tls")["ca.crt"])


async def test_certificate_of_another_ca_is_used_until_the_managed_one_has_settled() -> None:
    by_hand = Authority.create("by-hand", now=START)
    other = ca_generations.pem(by_hand.key_pair.certificate)
    leaf = by_hand.issue_client("kube-apiserver", lifetime=14 * DAY, now=START)
    pair = {"tls.crt": ca_generations.pem(leaf.certificate), "tls.key": key_pem(leaf.key)}
    api = await kept()
    api.change("podgate-client-ca", {"line.json": None})
    api.change("podgate-tls", {"ca.crt": other, "others-ca.crt": other})
    api.change("podgate-apiserver", pair)
    did, _ = await settle(api, [CaController(PLAN)], START)
    assert did[0].startswith("podgate-client-ca: adopted")
    assert api.secret("podgate-apiserver")["tls.crt"] == pair["tls.crt"]
    await settle(api, [CaController(PLAN)], START + DAY)
    assert api.secret("podgate-apiserver")["tls.crt"] != pair["tls.crt"]
    await settle(api, [CaController(PLAN)], START + 20 * DAY)
    assert by_hand.key_pair.certificate in certificates(api.secret("podgate-tls")["ca.crt"])
    assert other not in api.secret("podgate-client-ca")["ca.crt"]


async def test_unreadable_other_cas_keep_the_trusted_ones() -> None:
    other = Authority.create("reporters", now=START).key_pair.certificate
    api = await kept()
    api.change("podgate-tls", {"others-ca.crt": ca_generations.pem(other)})
    await settle(api, [CaController(PLAN)], START)
    api.change("podgate-tls", {"others-ca.crt": b"-----BEGIN CERTIFICATE-----\nx"})
    did, troubles = await settle(api, [CaController(PLAN)], START + 13 * DAY)
    assert any("podgate-apiserver: issued by" in text for text in did)
    assert other in certificates(api.secret("podgate-tls")["ca.crt"])
    [text] = troubles
    assert text.startswith("Secret podgate-system/podgate-tls: others-ca.crt: holds no certificates in PEM")


# --- tokens ---


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
async def test_key_of_a_manually_issued_token_is_adopted_whatever_its_line_ending(end: bytes) -> None:
    api = await kept()
    key, now = new_key("ES256"), int(START.timestamp())
    jwk = public_jwk(key.public_key())
    token = sign(key, {**ISSUER.claims(now), "exp": now + 86400})
    metadata = {"name": "podgate-jwks", "labels": LABELS}
    api.put(f"{CONFIG_MAPS}/podgate-jwks", {"metadata": metadata, "data": {"jwks.json": key_set([jwk])}})
    api.change("podgate-apiserver", {"token": token.encode() + end})
    did, _ = await settle(api, [TokenController(ISSUER)], START)
    assert did[0] == f"podgate-token-keys: adopted key {jwk['kid']}: it has signed the token in use"
    published = json.loads(api.whole(f"{CONFIG_MAPS}/podgate-jwks")["data"]["jwks.json"])["keys"]
    assert len(published) == 2
    assert {one["iss"] for one in published} == {"https://podgate"}
    assert base64.b64decode(api.whole(f"{SECRETS}/podgate-apiserver")["data"]["token"]).strip() == token.encode()


# --- doors ---


async def test_webhooks_at_a_port_with_a_changed_certificate_are_switched_back() -> None:
    api, duties = await kept(), DUTIES
    await settle(api, duties, START)
    now, did = START + 13 * DAY, list[str]()
    while not any("port 443: renewed while the port is not in use" in text for text in did):
        now += DAY / 8640
        did, _ = await settle(api, duties, now)
    assert api.ports == {444}
    api.lead(443)
    await settle(api, duties, now)
    assert api.ports == {444}
    assert expiry(api.secret("podgate-apiserver")["first.pem"]) > now + 10 * DAY


async def test_removed_ports_leave_no_certificates() -> None:
    api = await kept()
    await settle(api, DUTIES, START)
    assert {"first.pem", "second.pem", "doors.json"} < set(api.secret("podgate-apiserver"))
    did, _ = await settle(api, [CaController(PLAN), PortCleanup()], START)
    assert did == ["podgate-apiserver: removed the certificates per port"]
    assert set(api.secret("podgate-apiserver")) == {"tls.crt", "tls.key", "ca.crt"}
    assert await settle(api, [PortCleanup()], START) == ([], [])
    api.disown("podgate-apiserver")
    assert len((await settle(api, [PortCleanup()], START))[1]) == 1


async def test_unreadable_configuration_does_not_block_the_unused_port() -> None:
    api = await kept()
    await settle(api, DUTIES, START)
    api.unreadable.add(f"{GROUP}/{CONFIGURATIONS[2]}")
    now = START
    while now < START + 13 * DAY:
        now += DAY / 24
        _, troubles = await settle(api, DUTIES, now)
        assert len(set(troubles)) == 1
    found = api.secret("podgate-apiserver")
    assert found["second.pem"] == found["tls.crt"] + found["tls.key"]
    assert expiry(found["second.pem"]) > expiry(found["first.pem"])
    assert api.ports == {443}, "the one that cannot be read may lead there"


async def test_port_of_an_unreadable_configuration_is_left_unchanged() -> None:
    api = await kept()
    api.lead(444)
    await settle(api, DUTIES, START)
    api.unreadable.add(f"{GROUP}/{CONFIGURATIONS[2]}")
    api.lead(443)
    before = api.secret("podgate-apiserver")["second.pem"]
    for hour in range(13 * 24):
        await settle(api, DUTIES, START + hour * DAY / 24)
    assert api.secret("podgate-apiserver")["tls.crt"] not in before, "it was renewed"
    assert api.secret("podgate-apiserver")["second.pem"] == before


@pytest.mark.parametrize("ports", [None, "443,444"])
def test_controller_removes_certificates_of_absent_ports(tmp_path: Path, ports: str | None) -> None:
    (tmp_path / "kubeconfig").write_text("{}")
    flags = {"certificates": "own", "kubeconfig": str(tmp_path / "kubeconfig"), "caller_ports": ports}
    kinds = [type(one) for one in tasks_of(parse_as(ControllerSettings, flags, {}))]
    assert kinds == [CaController, PortSwitch if ports else PortCleanup]
