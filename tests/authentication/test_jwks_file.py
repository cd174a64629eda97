"""Key sets in files: accepted keys, errors, and reloading."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tests.harness.identity import Signer, jwks, signer
from tests.harness.rsa_keys import roca_key, rsa_key
from webhook.authentication.jwks import read_key_set
from webhook.authentication.jwks_file import JwksFile
from webhook.authentication.published_keys import JwksUnion
from webhook.errors import UserError

GOOD = signer().jwk()


def write(path: Path, *keys: Any) -> Path:
    path.write_text(json.dumps({"keys": list(keys)}))
    return path


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "PS256", "EdDSA"])
def test_a_key_is_found_by_kid_and_bound_to_its_algorithm(tmp_path: Path, algorithm: str) -> None:
    issuer = signer(algorithm)
    source = JwksFile(write(tmp_path / "jwks.json", issuer.jwk()))
    key = source.keys.get(issuer.jwk()["kid"])
    assert key is not None
    assert key.algorithm == algorithm
    assert source.keys.get("another") is None


@pytest.mark.parametrize(("algorithm", "inferred"), [("ES256", "ES256"), ("PS256", "RS256"), ("EdDSA", "EdDSA")])
def test_key_without_alg_is_bound_to_an_inferred_algorithm(tmp_path: Path, algorithm: str, inferred: str) -> None:
    jwk = signer(algorithm).jwk()
    del jwk["alg"]
    key = JwksFile(write(tmp_path / "jwks.json", jwk)).keys.get(jwk["kid"])
    assert key is not None
    assert key.algorithm == inferred


def _private(key_signer: Signer) -> dict[str, Any]:
    assert isinstance(key_signer.key, ec.EllipticCurvePrivateKey)
    return {**ECAlgorithm.to_jwk(key_signer.key, as_dict=True), "kid": "k"}


def _short_rsa() -> dict[str, Any]:
    weak = rsa_key(1024)  # must be refused
    return {**RSAAlgorithm.to_jwk(weak.public_key(), as_dict=True), "kid": "k"}


def _p384() -> dict[str, Any]:
    return {**ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP384R1()).public_key(), as_dict=True), "kid": "k"}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([], '"keys" must be a list of 1 to 128 keys'),
        ([{"kty": "oct", "k": "c2VjcmV0", "kid": "k", "alg": "HS256"}], "kty is 'oct': must be EC, RSA or OKP"),
        ([_private(signer())], "private key material (d)"),
        ([{**GOOD, "use": "enc"}], "use is 'enc': must be sig"),
        ([{**GOOD, "use": None}], "use is None: must be sig"),
        ([{**GOOD, "key_ops": ["sign"]}], "key_ops is ['sign']: must contain verify"),
        ([{**GOOD, "key_ops": 7}], "key_ops is 7: must contain verify"),
        ([{**GOOD, "alg": "HS256"}], "alg is 'HS256': a key of kty EC verifies ES256"),
        ([{**GOOD, "alg": "RS256"}], "alg is 'RS256'"),
        ([{**GOOD, "alg": ["ES256"]}], "alg is ['ES256']"),
        ([_p384()], "must be P-256"),
        ([_short_rsa()], "1024 bits: an RSA key must have 2048 to 8192"),
        (
            [{**RSAAlgorithm.to_jwk(roca_key().public_key(), as_dict=True), "kid": "roca"}],
            "an RSA key whose private half can be computed (CVE-2017-15361, ROCA): make a new one",
        ),
        ([{**GOOD, "crv": "Ed448", "kty": "OKP", "alg": "EdDSA"}], "no usable OKP key"),
        ([{**GOOD, "x": "!"}], "no usable EC key"),
        ([{**GOOD, "x": 7}], "no usable EC key"),
        ([{name: value for name, value in GOOD.items() if name != "kid"}], "kid must be a text"),
        ([{**GOOD, "kid": "a b"}], "kid must be a text"),
        ([GOOD, GOOD], "is used twice"),
        (["text"], "must be an object"),
        ([{**GOOD, "kty": {}}], "kty is {}"),
    ],
)
def test_a_bad_key_is_refused_with_its_place_and_fault(tmp_path: Path, keys: list[Any], message: str) -> None:
    with pytest.raises(UserError) as refused:
        JwksFile(write(tmp_path / "jwks.json", *keys))
    assert message in str(refused.value)
    assert "jwks.json" in str(refused.value)


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"\xff\xfe", b"[" * 5000, b'{"keys": {}}'])
def test_malformed_key_set_is_rejected(text: bytes) -> None:
    with pytest.raises(UserError):
        read_key_set(text, "jwks.json")


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        JwksFile(write(tmp_path / "jwks.json", {**GOOD, "use": "enc"}, GOOD, "text"))
    assert [line.split(": ")[1] for line in str(refused.value).splitlines()] == [
        f"keys[0] (kid {GOOD['kid']!r})",
        "keys[2] (kid None)",
    ]


def test_too_large_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(" " * 300_000)
    with pytest.raises(UserError, match="larger than"):
        JwksFile(path)


def test_changed_file_is_loaded_and_a_bad_one_keeps_the_last_good_set(tmp_path: Path) -> None:
    old, new = signer(), signer()
    path, reports = tmp_path / "jwks.json", list[str | None]()
    path.write_text(jwks(old))
    source = JwksFile(path, reports.append)
    source.reload()
    assert source.generation == 1

    path.write_text(jwks(old, new)[:-20])
    source.reload()
    source.reload()
    assert source.keys.get(old.jwk()["kid"]) is not None
    assert (source.generation, source.failures, len(reports)) == (1, 1, 2)
    assert source.trouble == reports[1]

    path.unlink()
    source.reload()
    assert (source.generation, source.failures) == (1, 2)

    path.write_text(jwks(new))
    source.reload()
    assert source.keys.get(new.jwk()["kid"]) is not None
    assert source.keys.get(old.jwk()["kid"]) is None
    assert source.generation == 2
    assert source.trouble == ""


async def test_file_is_polled(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(jwks(signer()))
    source = JwksFile(path)
    watching = asyncio.create_task(source.run(interval_seconds=0.001))
    path.write_text(jwks(signer()))
    while source.generation == 1:  # noqa: ASYNC110 - there is nothing to wait on: the file is polled
        await asyncio.sleep(0.001)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


def test_key_may_be_bound_to_an_issuer(tmp_path: Path) -> None:
    bound, free = signer(), signer()
    source = JwksFile(write(tmp_path / "jwks.json", {**bound.jwk(), "iss": "https://a"}, free.jwk()))
    assert {key.issuer for key in source.keys.values()} == {"https://a", None}
    assert source.claimed == {"https://a"}


def test_issuer_of_a_removed_key_stays_claimed(tmp_path: Path) -> None:
    removed, free = signer(), signer()
    path = write(tmp_path / "jwks.json", {**removed.jwk(), "iss": "https://a"}, free.jwk())
    source = JwksFile(path)
    [unbound] = [key for key in source.keys.values() if key.issuer is None]
    for keys in ([free.jwk()], [{**free.jwk(), "iss": "https://b"}], [free.jwk()]):
        write(path, *keys)
        source.reload()
        assert not JwksUnion([source]).may_sign(unbound, "https://a")
    assert source.claimed == {"https://a", "https://b"}


def test_issuers_of_an_invalid_file_are_not_claimed(tmp_path: Path) -> None:
    path = write(tmp_path / "jwks.json", GOOD)
    source = JwksFile(path)
    write(path, {**GOOD, "iss": "https://a"}, "text")
    source.reload()
    assert source.claimed == set()


@pytest.mark.parametrize("issuer", [7, "", None, [], "x" * 513])
def test_an_issuer_that_is_no_text_makes_a_bad_key(tmp_path: Path, issuer: object) -> None:
    with pytest.raises(UserError, match="must name the issuer"):
        JwksFile(write(tmp_path / "jwks.json", {**GOOD, "iss": issuer}))


def test_oversized_rsa_key_is_rejected(tmp_path: Path) -> None:
    modulus = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True)["x"]
    huge = {"kty": "RSA", "e": "AQAB", "n": "__" + str(modulus) * 40, "kid": "k"}
    with pytest.raises(UserError, match="must have 2048 to 8192"):
        JwksFile(write(tmp_path / "jwks.json", huge))


def test_published_set_keeps_good_keys_and_omits_both_keys_of_one_kid() -> None:
    first, second = signer().jwk(), {**signer().jwk(), "kid": "twice"}
    keys = [first, {**GOOD, "use": "enc"}, second, {**GOOD, "kid": "twice"}]
    key_set = read_key_set(json.dumps({"keys": keys}).encode(), "the set")
    assert list(key_set.keys) == [first["kid"]]
    assert [fault.partition("): ")[2] for fault in key_set.faults] == [
        "use is 'enc': must be sig",
        "the kid 'twice' is used twice",
    ]


@pytest.mark.parametrize("issuer", [None, "https://a"])
def test_published_keys_cannot_name_another_issuer(issuer: str | None) -> None:
    for claimed in ("https://elsewhere", 7):
        content = json.dumps({"keys": [{**GOOD, "iss": claimed}]}).encode()
        [key] = read_key_set(content, "the set", issuer).keys.values()
        assert key.issuer == issuer
