"""Signed policies: which documents are accepted, and what is said about the others."""

import base64
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tests.cli.command_runner import podgate, policy_text
from webhook.core.document.loading import compute_hash
from webhook.errors import SignatureError, UserError
from webhook.policy_in_force.policy_signatures import PolicySignatures, sign_document

DOCUMENT = policy_text("- {name: web, match: {namespaces: [shop]}}\n").encode()
PLACE = "data['policy.sig']"
ONE, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()


def write_public(*keys: Ed25519PrivateKey) -> bytes:
    return b"".join(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo) for key in keys)


def write_private(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def sign(document: bytes, key: Ed25519PrivateKey = ONE) -> str:
    return sign_document(document, write_private(key), "key.pem")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.pem"
    path.write_bytes(write_public(ONE))
    return path


def refuse(signatures: PolicySignatures, document: bytes, signature: str | None) -> str:
    with pytest.raises(SignatureError) as refused:
        signatures.verify(document, signature, PLACE)
    return str(refused.value)


def test_a_signed_document_is_accepted_and_its_copy_has_the_signature(keys: Path) -> None:
    signatures = PolicySignatures(keys)
    assert signatures.is_required
    signatures.verify(DOCUMENT, f"{sign(DOCUMENT)}\n", PLACE)
    assert signatures.find(DOCUMENT) == sign(DOCUMENT)
    assert signatures.find(b"other") is None


def test_what_is_not_signed_by_a_key_is_refused_with_the_remedy(keys: Path) -> None:
    signatures = PolicySignatures(keys)
    for missing in (None, "", " \n"):
        assert refuse(signatures, DOCUMENT, missing) == (
            f"{PLACE} is missing: the policy is not signed, and --policy-keys {keys} asks for it:"
            " podgate policy sign FILE --key PRIVATE.pem prints a signature"
        )
    for malformed in ("?", "YWJj", base64.b64encode(bytes(65)).decode()):
        assert "not an Ed25519 signature, 64 bytes in base64" in refuse(signatures, DOCUMENT, malformed)
    changed = DOCUMENT + b"# changed\n"
    for document, signature in ((DOCUMENT, sign(DOCUMENT, OTHER)), (changed, sign(DOCUMENT))):
        said = refuse(signatures, document, signature)
        assert said.startswith(f"{PLACE}: ")
        assert signature[:16] in said
        assert f": not made for this document (hash {compute_hash(document)})" in said
        assert f"by any of the 1 keys of --policy-keys {keys}" in said
        assert signatures.find(document) is None


def test_two_keys_serve_a_rotation_and_the_file_is_read_again(keys: Path) -> None:
    signatures = PolicySignatures(keys)
    refuse(signatures, DOCUMENT, sign(DOCUMENT, OTHER))
    keys.write_bytes(write_public(ONE, OTHER))
    for key in (ONE, OTHER):
        signatures.verify(DOCUMENT, sign(DOCUMENT, key), PLACE)
    keys.write_bytes(write_public(OTHER))
    refuse(signatures, DOCUMENT, sign(DOCUMENT))
    keys.unlink()
    assert "No such file" in refuse(signatures, DOCUMENT, sign(DOCUMENT))
    keys.write_bytes(b"")
    assert refuse(signatures, DOCUMENT, sign(DOCUMENT)).startswith(f"--policy-keys {keys}: no key in it")


def test_without_keys_every_document_is_accepted() -> None:
    signatures = PolicySignatures()
    assert not signatures.is_required
    signatures.verify(DOCUMENT, None, PLACE)
    assert signatures.find(DOCUMENT) is None
    signatures.verify(DOCUMENT, "anything", PLACE)
    assert signatures.find(DOCUMENT) == "anything"


def test_a_file_without_good_keys_is_refused_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "keys.pem"
    elliptic = generate_private_key(SECP256R1()).public_key()
    wrong = {
        b"": "no key in it",
        write_public(ONE) + write_private(OTHER): "key 2: a private key",
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n": "key 1: PUBLIC KEY: not a public key",
        elliptic.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo): "key 1: not an Ed25519 key",
    }
    for content, reason in wrong.items():
        path.write_bytes(content)
        with pytest.raises(UserError, match=reason):
            PolicySignatures(path)


def test_a_policy_is_signed_and_linted_on_the_command_line(tmp_path: Path, keys: Path) -> None:
    policy, private = tmp_path / "policy.yaml", tmp_path / "private.pem"
    policy.write_bytes(DOCUMENT)
    private.write_bytes(write_private(ONE))
    unsigned = podgate("policy", "lint", policy, "--policy-keys", keys)
    assert (unsigned.code, f"{policy}.sig is missing: the policy is not signed" in unsigned.out) == (1, True)
    signed = podgate("policy", "sign", policy, "--key", private)
    assert (signed.code, signed.out) == (0, f"{sign(DOCUMENT)}\n")
    Path(f"{policy}.sig").write_text(signed.out)
    assert podgate("policy", "lint", policy, "--policy-keys", keys).code == 0
    policy.write_bytes(DOCUMENT + b"\n")
    assert "not made for this document" in podgate("policy", "lint", policy, "--policy-keys", keys).out
    assert podgate("policy", "lint", "-", "--policy-keys", keys, stdin=DOCUMENT).code == 2
    assert podgate("policy", "sign", policy, "--key", keys).error.startswith(f"{keys}: not a private key in PEM")
    encrypted = ONE.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    private.write_bytes(encrypted)
    assert podgate("policy", "sign", policy, "--key", private).error.startswith(f"{private}: the key is encrypted")
