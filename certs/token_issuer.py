"""Token issuer: signing keys, JWTs, and the public key set (JWKS) that verifies them."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_public_key
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from certs.errors import CertsError

ALGORITHMS = ("ES256", "RS256", "PS256", "EdDSA")
RSA_ALGORITHMS = ("RS256", "PS256")
_NEW_RSA_BITS = 3072
_RSA_BITS_MIN = 2048

PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
PublicKey: TypeAlias = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey

# RFC 7638, 3.2: the members that a thumbprint is taken of.
_THUMBPRINT_MEMBERS = {"EC": ("crv", "kty", "x", "y"), "RSA": ("e", "kty", "n"), "OKP": ("crv", "kty", "x")}


def new_key(algorithm: str) -> PrivateKey:
    match algorithm:
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=_NEW_RSA_BITS)


def encode_key(key: PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def parse_public_key(pem: bytes) -> object:
    """Return the public key of a PEM public key or certificate; ValueError if there is none."""
    if b"BEGIN CERTIFICATE" in pem:
        return x509.load_pem_x509_certificate(pem).public_key()
    return load_pem_public_key(pem)


def choose_algorithm(key: object, wanted: str | None = None) -> str:
    """Return the algorithm that a key signs with: `wanted`, or the default of its type (RS256 for RSA)."""
    match key:
        case ec.EllipticCurvePrivateKey() | ec.EllipticCurvePublicKey() if isinstance(key.curve, ec.SECP256R1):
            fits: tuple[str, ...] = ("ES256",)
        case ed25519.Ed25519PrivateKey() | ed25519.Ed25519PublicKey():
            fits = ("EdDSA",)
        case rsa.RSAPrivateKey() | rsa.RSAPublicKey() if key.key_size >= _RSA_BITS_MIN:
            fits = RSA_ALGORITHMS
        case _:
            raise CertsError(
                "tokens are not signed with keys of this type", "use EC P-256, RSA >= 2048 bits or Ed25519"
            )
    if wanted is not None and wanted not in fits:
        raise CertsError(f"the key does not sign {wanted}", f"use {' or '.join(fits)}, or another key")
    return wanted or fits[0]


def build_jwk(key: PublicKey, algorithm: str | None = None, kid: str | None = None) -> dict[str, str]:
    """Return the key as the key set shows it; its kid is by default its RFC 7638 thumbprint."""
    alg = choose_algorithm(key, algorithm)
    match key:
        case ec.EllipticCurvePublicKey():
            jwk: Mapping[str, Any] = ECAlgorithm.to_jwk(key, as_dict=True)
        case rsa.RSAPublicKey():
            jwk = RSAAlgorithm.to_jwk(key, as_dict=True)
        case _:
            jwk = OKPAlgorithm.to_jwk(key, as_dict=True)
    members = {name: str(jwk[name]) for name in _THUMBPRINT_MEMBERS[jwk["kty"]]}
    canonical = json.dumps(members, sort_keys=True, separators=(",", ":")).encode()
    return {**members, "kid": kid or _encode_base64url(hashlib.sha256(canonical).digest()), "use": "sig", "alg": alg}


def format_key_set(keys: Sequence[dict[str, str]]) -> str:
    """Return the JWKS text, with each key once."""
    distinct = {json.dumps(key, sort_keys=True): key for key in keys}.values()
    kids = [key["kid"] for key in distinct]
    again = sorted({kid for kid in kids if kids.count(kid) > 1})
    if again:
        raise CertsError(f"two different keys have the kid {again[0]!r}", "give each key a kid of its own")
    return json.dumps({"keys": list(distinct)}, indent=2) + "\n"


def sign(key: PrivateKey, claims: Mapping[str, Any], algorithm: str | None = None, kid: str | None = None) -> str:
    """Return a JWT with these claims."""
    jwk = build_jwk(key.public_key(), algorithm, kid)
    return jwt.encode(dict(claims), key, algorithm=jwk["alg"], headers={"kid": jwk["kid"]})


def build_binding(certificate: x509.Certificate) -> dict[str, str]:
    """Return the `cnf` claim that binds a token to one client certificate (RFC 8705)."""
    return {"x5t#S256": _encode_base64url(certificate.fingerprint(hashes.SHA256()))}


def _encode_base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
