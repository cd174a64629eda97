"""Facts from Secrets, certificates and metrics, as `podgate check` reads them."""

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import create_server
from threading import Thread

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import Authority, KeyPair, list_server_names
from tests.harness.identity import Pki, Signer
from tests.harness.loopback import loopback
from tests.server.listener import hello
from webhook.adapters.kubernetes.api.requests import RefusedError
from webhook.adapters.kubernetes.cluster_facts import (
    Reading,
    count_refused,
    fetch_chain,
    list_secret_facts,
    list_trust_facts,
    parse_chain,
)
from webhook.adapters.kubernetes.cluster_facts.probing import _FAIL_OPEN, _parse_counts
from webhook.adapters.kubernetes.cluster_facts.reading import describe_right
from webhook.tls.context import make_server_context

HOST = "podgate.podgate-system.svc"


def encode(*parts: bytes) -> str:
    return base64.b64encode(b"".join(parts)).decode()


def pem(credentials: KeyPair) -> bytes:
    return credentials.certificate.public_bytes(Encoding.PEM)


def error(bundle: str, chain: bytes) -> str:
    webhook = {"name": "mutate.podgate.io", "clientConfig": {"caBundle": bundle}}
    [fact] = list_trust_facts([("x", webhook)], parse_chain({"tls.crt": encode(chain)}))
    return fact.error


@pytest.fixture(scope="module")
def authorities() -> tuple[Authority, Authority]:
    return Authority.create("one"), Authority.create("two")


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("/api/v1/namespaces/shop/pods/web", "get pods named web in shop"),
        ("/api/v1/pods", "get pods"),
        ("/api/v1/nodes/a1", "get nodes named a1"),
        ("/api/v1/namespaces/shop", "get namespaces named shop"),
        ("/api/v1/namespaces", "get namespaces"),
        ("/apis/apps/v1/namespaces/shop/replicasets", "get replicasets.apps in shop"),
        ("/apis/storage.k8s.io/v1/storageclasses", "get storageclasses.storage.k8s.io"),
    ],
)
def test_a_right_has_verb_resource_and_namespace(path: str, right: str) -> None:
    assert describe_right("get", path) == right


def test_a_forbidden_read_is_told_from_one_that_fails() -> None:
    reading = Reading()
    reading.on_creation_failed("a", "list pods in shop", RefusedError(403, "pods is forbidden"))
    reading.on_creation_failed("b", "list pods in shop", RefusedError(500, "etcd"))
    assert reading.unread == {
        "a": "you may not list pods in shop",
        "b": "cannot list pods in shop: HTTP 500: etcd",
    }
    assert [
        (RefusedError(status, "").is_absent, RefusedError(status, "").is_forbidden) for status in (403, 404, 500)
    ] == [
        (False, True),
        (True, False),
        (False, False),
    ]


def test_serving_certificate_verifies_by_a_bundle_with_its_ca(authorities: tuple[Authority, Authority]) -> None:
    own, other = authorities
    leaf = pem(own.issue_server(HOST, list_server_names(HOST)))
    assert error(encode(pem(own.key_pair)), leaf) == ""
    assert error(encode(pem(other.key_pair), pem(own.key_pair)), leaf) == ""
    assert f"which {own.key_pair.certificate.subject.rfc4514_string()} has signed" in error(
        encode(pem(other.key_pair)), leaf
    )
    assert error(encode(leaf), leaf) == "", "a certificate that is trusted itself"


def test_intermediates_in_the_secret_are_followed(authorities: tuple[Authority, Authority]) -> None:
    root, other = authorities
    middle = intermediate(root)
    leaf = pem(middle.issue_server(HOST, list_server_names(HOST)))
    bundle = encode(pem(root.key_pair))
    assert error(bundle, leaf + pem(middle.key_pair)) == ""
    assert error(bundle, leaf) != ""
    assert error(encode(pem(other.key_pair)), leaf + pem(middle.key_pair)) != ""


def intermediate(root: Authority) -> Authority:
    """Return a CA that another one has signed."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "middle")]))
        .issuer_name(root.key_pair.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(root.key_pair.key, hashes.SHA256())
    )
    return Authority(KeyPair(certificate, key))


@pytest.mark.parametrize("bundle", ["", encode(b"PLACEHOLDER"), "not base64"])
def test_bundle_without_a_certificate_is_found_without_the_serving_certificate(bundle: str) -> None:
    assert error(bundle, b"") == "holds no certificate: no call can succeed"


def test_secret_has_the_names_and_lifetimes_of_certificate_and_token(authorities: tuple[Authority, Authority]) -> None:
    leaf = authorities[0].issue_server(HOST, list_server_names(HOST))
    token = Signer().token(now=1_800_000_000)
    facts = list_secret_facts("podgate-tls", {"tls.crt": encode(pem(leaf)), "token": encode(token.encode())})
    certificate, jwt = facts
    assert HOST in certificate.names
    assert certificate.not_after_us == int(leaf.certificate.not_valid_after_utc.timestamp()) * 1_000_000
    assert (jwt.not_before_us, jwt.not_after_us) == (1_800_000_000_000_000, 1_800_003_600_000_000)
    assert list_secret_facts("x", {"tls.crt": "%", "token": encode(b"a.b.c")}) == ()


async def test_certificate_of_a_server_outside_the_cluster_is_read_without_a_refused_call(tmp_path: Path) -> None:
    pki = Pki.create(tmp_path / "pki")
    context = make_server_context(pki.paths)
    async with loopback(hello, lambda: context) as running:
        [served] = await asyncio.to_thread(fetch_chain, f"https://127.0.0.1:{running.port}/mutate")
        await running.wait_until(lambda: bool(running.refused))
        assert running.reasons == ["handshake_cut"], "another reason is a refused client, which has an alert"
    assert served == x509.load_pem_x509_certificate(pki.paths.certificate.read_bytes())


def test_server_that_ends_the_handshake_has_no_certificate() -> None:
    with create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            listener.accept()[0].close()

        thread = Thread(target=accept)
        thread.start()
        with pytest.raises(OSError, match=r"ended the handshake|reset"):
            fetch_chain(f"https://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


def test_counters_are_read_from_metrics() -> None:
    text = b"""\
# HELP apiserver_admission_webhook_fail_open_count x
apiserver_admission_webhook_fail_open_count{name="mutate.podgate.io",type="admitting"} 3
apiserver_admission_webhook_fail_open_count{name="validate-open.podgate.io",type="validating"} 2
podgate_refused_calls_total{reason="authentication_no_token"} 4
podgate_refused_calls_total{reason="handshake_cut"} 5
podgate_refused_calls_total{reason="body_timeout"} 6
"""
    assert _parse_counts(_FAIL_OPEN, text) == {"mutate.podgate.io": 3, "validate-open.podgate.io": 2}
    assert count_refused(text) == {"authentication_no_token": 4}
