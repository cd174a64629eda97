"""Attacks on the signature: truncated, extended, zeros, other encodings, other bytes, other hashes."""

from collections.abc import Callable
from dataclasses import replace

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

from tests.authentication.hostile_tokens.token_builder import Draft, Hostile, change_signature, good, key
from webhook.authentication.reasons import AuthFailure

_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_ED25519_ORDER = 2**252 + 27742317777372353535851937790883648493
_Signing = Callable[[Draft], Draft]


def _ec(name: str, change: Callable[[int, int], tuple[int, int]]) -> Hostile:
    """Return a signature of other numbers r and s."""

    def change_numbers(signature: bytes) -> bytes:
        r, s = change(int.from_bytes(signature[:32]), int.from_bytes(signature[32:]))
        return (r % 2**256).to_bytes(32) + (s % 2**256).to_bytes(32)

    return Hostile("signature", name, AuthFailure.SIGNATURE, change_signature(change_numbers))


def _any(name: str, change: Callable[[bytes], bytes], algorithm: str) -> Hostile:
    return Hostile(
        "signature", f"{name}, {algorithm}", AuthFailure.SIGNATURE, change_signature(change), lambda: good(algorithm)
    )


def _der(signature: bytes) -> bytes:
    return utils.encode_dss_signature(int.from_bytes(signature[:32]), int.from_bytes(signature[32:]))


def _rsa_key(name: str) -> rsa.RSAPrivateKey:
    private_key = key(name).key
    assert isinstance(private_key, rsa.RSAPrivateKey)
    return private_key


def _rsa(name: str, pads: padding.AsymmetricPadding, hashed: hashes.HashAlgorithm, algorithm: str) -> Hostile:
    """Return a signature of the right key, made with another padding or hash."""

    def sign_draft(draft: Draft) -> Draft:
        return replace(draft, sign=lambda unsigned: _rsa_key(algorithm).sign(unsigned, pads, hashed))

    return Hostile("signature", name, AuthFailure.SIGNATURE, sign_draft, lambda: good(algorithm))


def _sign_over(change: Callable[[bytes], bytes]) -> _Signing:
    """Sign other bytes than those that are sent."""
    return lambda draft: replace(draft, sign=lambda unsigned: draft.signature(change(unsigned)))


def _add_order(signature: bytes) -> bytes:
    """Return the other encoding of an Ed25519 signature, which lax verifiers accept."""
    return signature[:32] + (int.from_bytes(signature[32:], "little") + _ED25519_ORDER).to_bytes(32, "little")


def _add_modulus(signature: bytes) -> bytes:
    larger = int.from_bytes(signature) + _rsa_key("RS256").public_key().public_numbers().n
    return larger.to_bytes(len(signature) + 1)


def _alter_claims(draft: Draft) -> Draft:
    """Keep the signature of the good claims."""
    old = draft.token.rpartition(".")[0].encode()
    return replace(draft.set_claims(client_id="somebody else"), sign=lambda _: draft.signature(old))


def _alter_header(draft: Draft) -> Draft:
    old = draft.token.rpartition(".")[0].encode()
    return replace(draft.set_header(typ="at+jwt"), sign=lambda _: draft.signature(old))


def _sha512(unsigned: bytes) -> bytes:
    private = key("ES256").key
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    r, s = utils.decode_dss_signature(private.sign(unsigned, ec.ECDSA(hashes.SHA512())))
    return r.to_bytes(32) + s.to_bytes(32)


def _pss(salt_length: int, inner: hashes.HashAlgorithm) -> padding.PSS:
    return padding.PSS(padding.MGF1(inner), salt_length)


_EVERY = ("ES256", "RS256", "PS256", "EdDSA")

CASES = (
    *(_any("a byte short", lambda s: s[:-1], algorithm) for algorithm in _EVERY),
    *(_any("a byte long", lambda s: s + b"\0", algorithm) for algorithm in _EVERY),
    *(_any("a zero in front", lambda s: b"\0" + s, algorithm) for algorithm in _EVERY),
    *(_any("zeros", lambda s: bytes(len(s)), algorithm) for algorithm in _EVERY),
    *(_any("ones", lambda s: b"\xff" * len(s), algorithm) for algorithm in _EVERY),
    *(_any("one byte", lambda _: b"\1", algorithm) for algorithm in _EVERY),
    *(_any("backwards", lambda s: s[::-1], algorithm) for algorithm in _EVERY),
    *(_any("twice", lambda s: s + s, algorithm) for algorithm in _EVERY),
    _any("in DER", _der, "ES256"),
    _ec("r is zero", lambda _r, s: (0, s)),
    _ec("s is zero", lambda r, _s: (r, 0)),
    _ec("r and s are one", lambda _r, _s: (1, 1)),
    _ec("r is the order of the curve", lambda _r, s: (_P256_ORDER, s)),
    _ec("s is the order of the curve", lambda r, _s: (r, _P256_ORDER)),
    _ec("r and s changed places", lambda r, s: (s, r)),
    _ec("r negated", lambda r, s: (_P256_ORDER - r, s)),
    _any("s and the order of the group", _add_order, "EdDSA"),
    _any("the number one", lambda s: (1).to_bytes(len(s)), "RS256"),
    _any("more than the modulus", _add_modulus, "RS256"),
    _rsa("RS256 over SHA-1", padding.PKCS1v15(), hashes.SHA1(), "RS256"),  # noqa: S303 - must be refused
    _rsa("RS256 over SHA-512", padding.PKCS1v15(), hashes.SHA512(), "RS256"),
    _rsa("RS256 padded as PS256", _pss(32, hashes.SHA256()), hashes.SHA256(), "RS256"),
    _rsa("PS256 padded as RS256", padding.PKCS1v15(), hashes.SHA256(), "PS256"),
    _rsa("PS256 without salt", _pss(0, hashes.SHA256()), hashes.SHA256(), "PS256"),
    _rsa("PS256 with more salt", _pss(64, hashes.SHA256()), hashes.SHA256(), "PS256"),
    _rsa("PS256 with another mask", _pss(32, hashes.SHA1()), hashes.SHA256(), "PS256"),  # noqa: S303 - must be refused
    _rsa("PS256 over SHA-512", _pss(32, hashes.SHA512()), hashes.SHA512(), "PS256"),
    Hostile("signature", "ES256 over SHA-512", AuthFailure.SIGNATURE, lambda d: replace(d, sign=_sha512)),
    Hostile(
        "signature",
        "over the claims alone",
        AuthFailure.SIGNATURE,
        _sign_over(lambda unsigned: unsigned.partition(b".")[2]),
    ),
    Hostile(
        "signature",
        "over the header alone",
        AuthFailure.SIGNATURE,
        _sign_over(lambda unsigned: unsigned.partition(b".")[0]),
    ),
    Hostile("signature", "over a dot more", AuthFailure.SIGNATURE, _sign_over(lambda unsigned: unsigned + b".")),
    Hostile("signature", "over nothing", AuthFailure.SIGNATURE, _sign_over(lambda _: b"")),
    Hostile("signature", "a claim altered afterwards", AuthFailure.SIGNATURE, _alter_claims),
    Hostile("signature", "the header altered afterwards", AuthFailure.SIGNATURE, _alter_header),
)
