"""Every valid token of the allowed algorithms is accepted, and none of its modifications."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.authentication.hostile_tokens.token_builder import (
    CLUSTER,
    LEEWAY,
    NOW,
    OTHER,
    AuthenticatorSetup,
    Draft,
    certificate,
    change_signature,
    cluster_token,
    good,
    key,
    make_bound,
    malleate,
    thumbprint,
)
from tests.harness.identity import Signer
from tests.harness.rsa_keys import rsa_key
from webhook.errors import AuthenticationError

ALGORITHMS = ("ES256", "RS256", "PS256", "EdDSA")
DAY = 86_400

SHAPES: dict[str, Callable[[Draft], Draft]] = {
    "as it is": lambda draft: draft,
    "without typ": lambda draft: draft.header_without("typ"),
    **{f"typ {typ}": lambda draft, typ=typ: draft.set_header(typ=typ) for typ in ("jwt", "at+jwt", "AT+JWT", "Jwt")},  # type: ignore[misc]  # each its own
    "typ as a media type": lambda draft: draft.set_header(typ="application/at+jwt"),
    "typ as JWT's media type": lambda draft: draft.set_header(typ="application/jwt"),
    "x5t, as some issuers send it": lambda draft: draft.set_header(x5t="9_Xc"),
    "the header the other way round": lambda draft: replace(draft, header=dict(reversed(list(draft.header.items())))),
    "spaces in the header": lambda draft: replace(draft, raw_header=json.dumps(dict(draft.header), indent=1).encode()),
    "no space anywhere": lambda draft: replace(
        draft, raw_claims=json.dumps(dict(draft.claims), separators=(",", ":")).encode()
    ),
    "escapes": lambda draft: replace(
        draft, raw_header=json.dumps(dict(draft.header)).replace("alg", "\\u0061lg").encode()
    ),
    "the audience in a list": lambda draft: draft.set_claims(aud=["podgate"]),
    "without nbf": lambda draft: draft.remove_claims("nbf"),
    "nbf before iat": lambda draft: draft.set_claims(nbf=NOW - 3600),
    "nbf now": lambda draft: draft.set_claims(nbf=NOW),
    "without jti": lambda draft: draft.remove_claims("jti"),
    "a jti of 512 letters": lambda draft: draft.set_claims(jti="j" * 512),
    "other letters": lambda draft: draft.set_claims(jti="Zürich 東京 🚦"),
    "other claims": lambda draft: draft.set_claims(**{"kubernetes.io": {"pod": {"name": "a"}}, "n": 10**30, "x": None}),
    "a small decimal number": lambda draft: draft.set_claims(x=0.1),
    "bound to its certificate": lambda draft: draft.set_claims(cnf={"x5t#S256": thumbprint("mine")}),
    "bound to its certificate and more": lambda draft: draft.set_claims(
        cnf={"x5t#S256": thumbprint("mine"), "jkt": "x"}
    ),
    "issued just now": lambda draft: draft.set_claims(iat=NOW),
    "issued ahead, within the leeway": lambda draft: draft.set_claims(iat=NOW + LEEWAY),
    "valid from ahead, within the leeway": lambda draft: draft.set_claims(nbf=NOW + LEEWAY),
    "expired, within the leeway": lambda draft: draft.set_claims(iat=NOW - 600, nbf=NOW - 600, exp=NOW - LEEWAY + 1),
    "the longest life": lambda draft: draft.set_claims(iat=NOW - 60, exp=NOW - 60 + DAY),
    "a life of a second": lambda draft: draft.set_claims(iat=NOW, exp=NOW + 1),
    "just short enough": lambda draft: draft.set_claims(
        x="x" * ((8192 - len(draft.set_claims(x="").token)) * 3 // 4 - 1)
    ),
    "a header of 1 KiB": lambda draft: replace(draft, raw_header=json.dumps(dict(draft.header)).encode().ljust(1024)),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_valid_shape_is_accepted(algorithm: str, shape: str) -> None:
    caller = AuthenticatorSetup().authenticate(SHAPES[shape](good(algorithm)))
    assert (caller.role, caller.client_id, caller.issuer) == ("apiserver", "kube-apiserver", "kube-apiserver")


@pytest.mark.parametrize("kid", ["k", "K9", "a.b_c~d", "urn:uuid:6b1f", "https://a/b=c@d", "+/==", "k" * 128])
def test_a_kid_may_be_any_name_that_needs_no_escape(kid: str) -> None:
    setup = AuthenticatorSetup()
    setup.own.publish({**key("ES256").jwk(), "kid": kid})
    assert setup.authenticate(good().set_header(kid=kid)).role == "apiserver"


@pytest.mark.parametrize("algorithm", ["RS256", "PS256"])
@pytest.mark.parametrize("bits", [2048, 3072, 4096])
@pytest.mark.parametrize("exponent", [3, 65537])
def test_an_rsa_key_of_any_accepted_size_verifies(algorithm: str, bits: int, exponent: int) -> None:
    signer = Signer(algorithm, kid="k", key=rsa_key(bits, exponent))
    setup = AuthenticatorSetup()
    setup.own.publish(signer.jwk())
    assert setup.authenticate(replace(good(algorithm).set_header(kid="k"), signer=signer)).role == "apiserver"


def test_token_of_the_clusters_own_issuer_is_accepted() -> None:
    account = {"namespace": "podgate-system", "serviceaccount": {"name": "caller", "uid": "u"}, "warnafter": NOW + 1}
    assert AuthenticatorSetup().authenticate(cluster_token().set_claims(**{"kubernetes.io": account})).issuer == CLUSTER


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_is_read_in_any_case(scheme: str) -> None:
    setup = AuthenticatorSetup()
    assert setup.authenticator.authenticate(certificate("mine"), [f"{scheme} {good().token}"]).role == "apiserver"


def test_two_keys_of_one_name_in_two_sets_are_both_found() -> None:
    setup = AuthenticatorSetup()
    own, of_cluster = good("ES256 ours").set_header(kid=key("ES256 shared").kid), good("ES256 shared")
    assert setup.authenticate(own).issuer == "kube-apiserver"
    of_cluster = of_cluster.set_claims(iss=CLUSTER, sub="system:serviceaccount:podgate-system:caller")
    assert setup.authenticate(of_cluster).issuer == CLUSTER


def test_rewritten_signature_does_not_change_the_id_of_the_token() -> None:
    """It verifies too, so tokens are revoked by their id, not by their text."""
    setup, token = AuthenticatorSetup(), good()
    rewritten = change_signature(malleate)(token)
    assert rewritten.token != token.token
    assert setup.authenticate(rewritten) == setup.authenticate(token)
    setup.revocations.denied.add(("kube-apiserver", "6b1f"))
    assert setup.refusal(token) is not None
    assert setup.refusal(rewritten) is not None


def test_a_token_without_an_id_cannot_be_denied() -> None:
    setup = AuthenticatorSetup()
    setup.revocations.denied.add(("kube-apiserver", ""))
    assert setup.authenticate(good().remove_claims("jti")).role == "apiserver"


@cache
def make_setup() -> AuthenticatorSetup:
    return AuthenticatorSetup()


@cache
def token_of(algorithm: str) -> str:
    return good(algorithm).token


def is_refused(token: str) -> bool:
    try:
        make_setup().authenticator.authenticate(certificate("mine"), [f"Bearer {token}"])
    except AuthenticationError:
        return True
    return False


def test_unaltered_tokens_are_accepted() -> None:
    assert [is_refused(token_of(algorithm)) for algorithm in ALGORITHMS] == [False] * 4


@given(st.sampled_from(ALGORITHMS), st.integers(0, 2**16), st.integers(0, 6))
def test_a_good_token_with_any_bit_flipped_is_refused(algorithm: str, place: int, bit: int) -> None:
    token = token_of(algorithm)
    position = place % len(token)
    altered = token[:position] + chr(ord(token[position]) ^ 1 << bit) + token[position + 1 :]
    assert is_refused(altered)


@given(st.sampled_from(ALGORITHMS), st.data())
def test_altered_token_is_rejected_or_equal_to_a_good_one(algorithm: str, data: Any) -> None:
    token, other = token_of(algorithm), token_of(data.draw(st.sampled_from(ALGORITHMS)))
    start = data.draw(st.integers(0, len(token)))
    end = data.draw(st.integers(start, len(token)))
    inserted = data.draw(st.one_of(st.text(max_size=20), st.sampled_from([other[start:end], other, ".", "=", "A"])))
    altered = token[:start] + inserted + token[end:]
    assert is_refused(altered) or altered in map(token_of, ALGORITHMS)


@given(st.text(max_size=300))
def test_malformed_token_is_rejected(text: str) -> None:
    assert is_refused(text)


def test_a_bound_token_is_good_with_its_own_certificate_alone() -> None:
    setup = AuthenticatorSetup()
    assert setup.authenticate(make_bound()).role == "apiserver"
    assert setup.refusal(make_bound(OTHER)) is not None
