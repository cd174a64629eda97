"""Attacks on the key: its selection, its owner, and its issuer."""

from collections.abc import Callable
from dataclasses import replace

import jwt

from tests.authentication.hostile_tokens.token_builder import (
    ACCOUNT,
    BOUND,
    CLUSTER,
    ISSUER,
    SHARED,
    STRANGER,
    SUBJECT,
    Draft,
    Hostile,
    cluster_token,
    good,
    key,
    large_curve,
    unusable_keys,
    weak_rsa,
)
from webhook.authentication.reasons import AuthFailure

_NO_KID: tuple[object, ...] = (None, 7, True, [], ["ES256"], {}, "", " ", "a b", "é", "k" * 129)
_TRICKS = ("../../dev/null", "a\0", "ES256\n", "' OR 1=1 --", "| curl x", "%00", "ES256 ", "{{7*7}}", "a,b", "a?b", "*")


def _kid(value: object) -> Callable[[Draft], Draft]:
    return lambda draft: draft.set_header(kid=value)


def _sign_by(name: str) -> Callable[[Draft], Draft]:
    """Sign with another key, but keep the kid."""
    return lambda draft: replace(draft, signer=key(name))


def _good(name: str) -> Callable[[], Draft]:
    return lambda: good(name)


def _weak(draft: Draft) -> Draft:
    signing = jwt.get_algorithm_by_name("RS256")
    named = draft.set_header(kid="too-weak", alg="RS256")
    return replace(named, sign=lambda unsigned: signing.sign(unsigned, weak_rsa()))


def _sign_by_large_key(draft: Draft) -> Draft:
    signing = jwt.get_algorithm_by_name("ES384")
    named = draft.set_header(kid="of-another-curve")
    return replace(named, sign=lambda unsigned: signing.sign(unsigned, large_curve()))


def _sign_by_unusable_key(kid: str) -> Callable[[Draft], Draft]:
    return lambda draft: replace(draft.set_header(kid=kid), signer=key("ES256 useless"))


def _make_bound() -> Draft:
    return good("ES256 bound", iss=BOUND)


def _share_kid() -> Draft:
    draft = good("ES256 ours")
    return draft.set_header(kid=key(SHARED).kid)


def _cluster_key_with_shared_kid() -> Draft:
    return good(SHARED, iss=CLUSTER, sub=ACCOUNT)


def _case(
    reason: AuthFailure, name: str, fault: Callable[[Draft], Draft], make_good: Callable[[], Draft] = good
) -> Hostile:
    return Hostile("key", name, reason, fault, make_good)


_SPECIAL_FAULTS = {"too-weak": _weak, "of-another-curve": _sign_by_large_key}

CASES = (
    *(_case(AuthFailure.UNKNOWN_KEY, f"the kid is {str(kid)[:20]!r}", _kid(kid)) for kid in (*_NO_KID, *_TRICKS)),
    _case(AuthFailure.UNKNOWN_KEY, "no kid", lambda draft: draft.header_without("kid")),
    _case(AuthFailure.UNKNOWN_KEY, "a kid in another case", _kid("es256")),
    _case(AuthFailure.UNKNOWN_KEY, "an address for a kid", _kid("https://attacker.example/key")),
    _case(
        AuthFailure.UNKNOWN_KEY,
        "a stranger's key by its own name",
        lambda d: replace(d.set_header(kid="x"), signer=key(STRANGER)),
    ),
    _case(AuthFailure.SIGNATURE, "a stranger's key", _sign_by(STRANGER)),
    _case(AuthFailure.SIGNATURE, "another key of the set", _sign_by("ES256 second")),
    _case(AuthFailure.SIGNATURE, "the kid of another key of the set", _kid("ES256-second")),
    _case(AuthFailure.SIGNATURE, "a stranger's RSA key", _sign_by("RS256 stranger"), _good("RS256")),
    _case(AuthFailure.SIGNATURE, "a stranger's RSA key for PSS", _sign_by("PS256 stranger"), _good("PS256")),
    _case(AuthFailure.SIGNATURE, "a stranger's Ed25519 key", _sign_by("EdDSA stranger"), _good("EdDSA")),
    *(
        _case(
            AuthFailure.UNKNOWN_KEY,
            f"a key of the set that is {fault}",
            _SPECIAL_FAULTS.get(jwk["kid"], _sign_by_unusable_key(jwk["kid"])),
        )
        for fault, jwk in unusable_keys().items()
        if fault not in {"too weak", "twice again"}
    ),
    Hostile("key", "a key of the set that is too weak", AuthFailure.UNKNOWN_KEY, _weak),
    _case(
        AuthFailure.KEY_ISSUER,
        "a key without an issuer that signs for the cluster's",
        lambda d: d.set_claims(iss=CLUSTER, sub=ACCOUNT),
    ),
    _case(
        AuthFailure.KEY_ISSUER,
        "the cluster's key that signs for another",
        lambda d: d.set_claims(iss=ISSUER, sub=SUBJECT),
        cluster_token,
    ),
    _case(
        AuthFailure.KEY_ISSUER,
        "a key without an issuer that signs for one that has its own",
        lambda d: d.set_claims(iss=BOUND),
    ),
    _case(
        AuthFailure.KEY_ISSUER,
        "a bound key that signs for an issuer that has none",
        lambda d: d.set_claims(iss=ISSUER),
        _make_bound,
    ),
    _case(
        AuthFailure.KEY_ISSUER,
        "a bound key that signs for the cluster's issuer",
        lambda d: d.set_claims(iss=CLUSTER, sub=ACCOUNT),
        _make_bound,
    ),
    _case(
        AuthFailure.KEY_ISSUER,
        "our key of a name that the cluster's has too",
        lambda d: d.set_claims(iss=CLUSTER, sub=ACCOUNT),
        _share_kid,
    ),
    _case(
        AuthFailure.KEY_ISSUER,
        "the cluster's key of a name that ours has too",
        lambda d: d.set_claims(iss=ISSUER, sub=SUBJECT),
        _cluster_key_with_shared_kid,
    ),
    _case(AuthFailure.SIGNATURE, "neither of two keys of one name", _sign_by(STRANGER), _share_kid),
)
