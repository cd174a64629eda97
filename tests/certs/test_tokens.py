import base64
import hashlib
import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from certs.errors import CertsError
from certs.token_issuer import ALGORITHMS, build_jwk, choose_algorithm, format_key_set, new_key, sign
from tests.harness.rsa_keys import rsa_key


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_token_verifies_with_the_published_key_and_names_it(algorithm: str) -> None:
    key = new_key(algorithm)
    token = sign(key, {"iss": "i"}, algorithm)
    (jwk,) = json.loads(format_key_set([build_jwk(key.public_key(), algorithm)]))["keys"]
    header = jwt.get_unverified_header(token)
    assert (header["alg"], header["kid"]) == (algorithm, jwk["kid"])
    assert (jwk["use"], jwk["alg"]) == ("sig", algorithm)
    assert jwt.decode(token, jwt.PyJWK(jwk), algorithms=[algorithm]) == {"iss": "i"}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_only_public_members_are_published(algorithm: str) -> None:
    jwk = build_jwk(new_key(algorithm).public_key(), algorithm)
    assert not {"d", "p", "q", "dp", "dq", "qi", "k"} & jwk.keys()


def test_kid_is_the_rfc_7638_thumbprint_unless_given() -> None:
    key = new_key("EdDSA").public_key()
    jwk = build_jwk(key)
    canonical = f'{{"crv":"Ed25519","kty":"OKP","x":"{jwk["x"]}"}}'.encode()
    thumbprint = base64.urlsafe_b64encode(hashlib.sha256(canonical).digest()).rstrip(b"=").decode()
    assert jwk["kid"] == thumbprint
    assert build_jwk(key, kid="mine")["kid"] == "mine"


def test_algorithm_of_another_key_type_is_rejected() -> None:
    with pytest.raises(CertsError, match="does not sign RS256"):
        sign(new_key("ES256"), {}, "RS256")


@pytest.mark.parametrize("kind", ["P-384", "RSA 1024"])
def test_unsupported_key_types_are_rejected(kind: str) -> None:
    key = rsa_key(1024) if kind == "RSA 1024" else ec.generate_private_key(ec.SECP384R1())
    with pytest.raises(CertsError, match="keys of this type"):
        choose_algorithm(key)


def test_a_key_set_holds_each_key_once_and_each_kid_once() -> None:
    one, other = (build_jwk(new_key("ES256").public_key(), kid="same") for _ in range(2))
    assert len(json.loads(format_key_set([one, one]))["keys"]) == 1
    with pytest.raises(CertsError, match="'same'"):
        format_key_set([one, other])
