import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tests.server.identity import Signer, jwks, signer
from webhook.adapters.jwks_file import JwksFile, parse_key_set
from webhook.errors import UserError

GOOD = signer().jwk()


def write(path: Path, *keys: Any) -> Path:
    path.write_text(json.dumps({"keys": list(keys)}))
    return path


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "PS256", "EdDSA"])
def test_a_key_is_found_by_kid_and_bound_to_its_algorithm(tmp_path: Path, algorithm: str) -> None:
    one = signer(algorithm)
    keys = JwksFile(write(tmp_path / "jwks.json", one.jwk()))
    found = keys.find(one.jwk()["kid"])
    assert found is not None
    assert found.algorithm == algorithm
    assert keys.find("another") is None


@pytest.mark.parametrize(("algorithm", "inferred"), [("ES256", "ES256"), ("PS256", "RS256"), ("EdDSA", "EdDSA")])
def test_a_key_without_alg_is_bound_all_the_same(tmp_path: Path, algorithm: str, inferred: str) -> None:
    jwk = signer(algorithm).jwk()
    del jwk["alg"]
    found = JwksFile(write(tmp_path / "jwks.json", jwk)).find(jwk["kid"])
    assert found is not None
    assert found.algorithm == inferred


def _private(one: Signer) -> dict[str, Any]:
    assert isinstance(one.key, ec.EllipticCurvePrivateKey)
    return {**ECAlgorithm.to_jwk(one.key, as_dict=True), "kid": "k"}


def _short_rsa() -> dict[str, Any]:
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505 - must be refused
    return {**RSAAlgorithm.to_jwk(weak.public_key(), as_dict=True), "kid": "k"}


def _p384() -> dict[str, Any]:
    return {**ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP384R1()).public_key(), as_dict=True), "kid": "k"}


@pytest.mark.parametrize(
    ("keys", "says"),
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
        ([_short_rsa()], "1024 bits: an RSA key must have 2048 or more"),
        ([{**GOOD, "crv": "Ed448", "kty": "OKP", "alg": "EdDSA"}], "no usable OKP key"),
        ([{**GOOD, "x": "!"}], "no usable EC key"),
        ([{**GOOD, "x": 7}], "no usable EC key"),
        ([{name: value for name, value in GOOD.items() if name != "kid"}], "kid must be a text"),
        ([{**GOOD, "kid": "a b"}], "kid must be a text"),
        ([GOOD, GOOD], "stands twice"),
        (["text"], "must be an object"),
        ([{**GOOD, "kty": {}}], "kty is {}"),
    ],
)
def test_a_bad_key_is_refused_with_its_place_and_fault(tmp_path: Path, keys: list[Any], says: str) -> None:
    with pytest.raises(UserError) as refused:
        JwksFile(write(tmp_path / "jwks.json", *keys))
    assert says in str(refused.value)
    assert "jwks.json" in str(refused.value)


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"\xff\xfe", b"[" * 5000, b'{"keys": {}}'])
def test_what_is_no_key_set_is_refused(text: bytes) -> None:
    with pytest.raises(UserError):
        parse_key_set(text, "jwks.json")


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        JwksFile(write(tmp_path / "jwks.json", {**GOOD, "use": "enc"}, GOOD, "text"))
    assert [line.split(": ")[1] for line in str(refused.value).splitlines()] == [
        f"keys[0] (kid {GOOD['kid']!r})",
        "keys[2] (kid None)",
    ]


def test_a_file_beyond_all_measure_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(" " * 300_000)
    with pytest.raises(UserError, match="larger than"):
        JwksFile(path)


def test_a_changed_file_is_taken_and_a_bad_one_leaves_the_last_good_set(tmp_path: Path) -> None:
    old, new = signer(), signer()
    path, told = tmp_path / "jwks.json", list[str]()
    path.write_text(jwks(old))
    keys = JwksFile(path, told.append)
    keys.reload()
    assert keys.generation == 1

    path.write_text(jwks(old, new)[:-20])
    keys.reload()
    keys.reload()
    assert keys.find(old.jwk()["kid"]) is not None
    assert (keys.generation, keys.failures, len(told)) == (1, 1, 1)
    assert keys.error == told[0]

    path.unlink()
    keys.reload()
    assert (keys.generation, keys.failures) == (1, 2)

    path.write_text(jwks(new))
    keys.reload()
    assert keys.find(new.jwk()["kid"]) is not None
    assert keys.find(old.jwk()["kid"]) is None
    assert keys.generation == 2
    assert keys.error is None


async def test_the_file_is_looked_at_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(jwks(signer()))
    keys = JwksFile(path)
    watching = asyncio.create_task(keys.run(interval_seconds=0.001))
    path.write_text(jwks(signer()))
    while keys.generation == 1:  # noqa: ASYNC110 - there is nothing to wait on: the file is polled
        await asyncio.sleep(0.001)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
