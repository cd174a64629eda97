"""Every valid token of the allowed algorithms is accepted, and none of its modifications."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from tests.authentication.hostile_tokens.token_builder import (
    CLUSTER,
    LEEWAY,
    NOW,
    OTHER,
    Draft,
    World,
    bound_to,
    certificate,
    clusters,
    good,
    key,
    malleated,
    signed,
    thumbprint,
)
from tests.harness.identity import Signer
from webhook.errors import AuthenticationError

ALGORITHMS = ("ES256", "RS256", "PS256", "EdDSA")
DAY = 86_400

SHAPES: dict[str, Callable[[Draft], Draft]] = {
    "as it is": lambda draft: draft,
    "without typ": lambda draft: draft.header_without("typ"),
    **{f"typ {typ}": lambda draft, typ=typ: draft.with_header(typ=typ) for typ in ("jwt", "at+jwt", "AT+JWT", "Jwt")},  # type: ignore[misc]  # each its own
    "typ as a media type": lambda draft: draft.with_header(typ="application/at+jwt"),
    "typ as JWT's media type": lambda draft: draft.with_header(typ="application/jwt"),
    "x5t, as some issuers send it": lambda draft: draft.with_header(x5t="9_Xc"),
    "the header the other way round": lambda draft: replace(draft, header=dict(reversed(list(draft.header.items())))),
    "spaces in the header": lambda draft: replace(draft, raw_header=json.dumps(dict(draft.header), indent=1).encode()),
    "no space anywhere": lambda draft: replace(
        draft, raw_claims=json.dumps(dict(draft.claims), separators=(",", ":")).encode()
    ),
    "escapes": lambda draft: replace(
        draft, raw_header=json.dumps(dict(draft.header)).replace("alg", "\\u0061lg").encode()
    ),
    "the audience in a list": lambda draft: draft.with_claims(aud=["podgate"]),
    "without nbf": lambda draft: draft.without("nbf"),
    "nbf before iat": lambda draft: draft.with_claims(nbf=NOW - 3600),
    "nbf now": lambda draft: draft.with_claims(nbf=NOW),
    "without jti": lambda draft: draft.without("jti"),
    "a jti of 512 letters": lambda draft: draft.with_claims(jti="j" * 512),
    "other letters": lambda draft: draft.with_claims(jti="Zürich 東京 🚦"),
    "other claims": lambda draft: draft.with_claims(
        **{"kubernetes.io": {"pod": {"name": "a"}}, "n": 10**30, "x": None}
    ),
    "a small decimal number": lambda draft: draft.with_claims(x=0.1),
    "bound to its certificate": lambda draft: draft.with_claims(cnf={"x5t#S256": thumbprint("mine")}),
    "bound to its certificate and more": lambda draft: draft.with_claims(
        cnf={"x5t#S256": thumbprint("mine"), "jkt": "x"}
    ),
    "issued just now": lambda draft: draft.with_claims(iat=NOW),
    "issued ahead, within the leeway": lambda draft: draft.with_claims(iat=NOW + LEEWAY),
    "valid from ahead, within the leeway": lambda draft: draft.with_claims(nbf=NOW + LEEWAY),
    "expired, within the leeway": lambda draft: draft.with_claims(iat=NOW - 600, nbf=NOW - 600, exp=NOW - LEEWAY + 1),
    "the longest life": lambda draft: draft.with_claims(iat=NOW - 60, exp=NOW - 60 + DAY),
    "a life of a second": lambda draft: draft.with_claims(iat=NOW, exp=NOW + 1),
    "just short enough": lambda draft: draft.with_claims(
        x="x" * ((8192 - len(draft.with_claims(x="").token)) * 3 // 4 - 1)
    ),
    "a header of 1 KiB": lambda draft: replace(draft, raw_header=json.dumps(dict(draft.header)).encode().ljust(1024)),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_valid_shape_is_accepted(algorithm: str, shape: str) -> None:
    caller = World().ask(SHAPES[shape](good(algorithm)))
    assert (caller.role, caller.client_id, caller.issuer) == ("apiserver", "kube-apiserver", "kube-apiserver")


@pytest.mark.parametrize("kid", ["k", "K9", "a.b_c~d", "urn:uuid:6b1f", "https://a/b=c@d", "+/==", "k" * 128])
def test_a_kid_may_be_any_name_that_needs_no_escape(kid: str) -> None:
    world = World()
    world.own.publish({**key("ES256").jwk(), "kid": kid})
    assert world.ask(good().with_header(kid=kid)).role == "apiserver"


@pytest.mark.parametrize("algorithm", ["RS256", "PS256"])
@pytest.mark.parametrize("bits", [2048, 3072, 4096])
@pytest.mark.parametrize("exponent", [3, 65537])
def test_an_rsa_key_of_any_accepted_size_verifies(algorithm: str, bits: int, exponent: int) -> None:
    private = rsa.generate_private_key(exponent, bits)
    by = Signer(algorithm, kid="k", key=private)
    world = World()
    world.own.publish(by.jwk())
    assert world.ask(replace(good(algorithm).with_header(kid="k"), by=by)).role == "apiserver"


def test_a_token_of_the_clusters_own_issuer_is_accepted_as_kubernetes_writes_it() -> None:
    account = {"namespace": "podgate-system", "serviceaccount": {"name": "caller", "uid": "u"}, "warnafter": NOW + 1}
    assert World().ask(clusters().with_claims(**{"kubernetes.io": account})).issuer == CLUSTER


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_is_read_in_any_case(scheme: str) -> None:
    world = World()
    assert world.authenticator.authenticate(certificate("mine"), [f"{scheme} {good().token}"]).role == "apiserver"


def test_two_keys_of_one_name_in_two_sets_are_both_found() -> None:
    world = World()
    ours, theirs = good("ES256 ours").with_header(kid=key("ES256 shared").kid), good("ES256 shared")
    assert world.ask(ours).issuer == "kube-apiserver"
    theirs = theirs.with_claims(iss=CLUSTER, sub="system:serviceaccount:podgate-system:caller")
    assert world.ask(theirs).issuer == CLUSTER


def test_a_rewritten_signature_is_the_same_token_and_so_has_the_same_id() -> None:
    """It verifies, for everybody: that is why no token is denied by its text."""
    world, token = World(), good()
    rewritten = signed(malleated)(token)
    assert rewritten.token != token.token
    assert world.ask(rewritten) == world.ask(token)
    world.denials.denied.add(("kube-apiserver", "6b1f"))
    assert world.refusal(token) is not None
    assert world.refusal(rewritten) is not None


def test_a_token_without_an_id_cannot_be_denied() -> None:
    world = World()
    world.denials.denied.add(("kube-apiserver", ""))
    assert world.ask(good().without("jti")).role == "apiserver"


@cache
def world() -> World:
    return World()


@cache
def token_of(algorithm: str) -> str:
    return good(algorithm).token


def is_refused(token: str) -> bool:
    try:
        world().authenticator.authenticate(certificate("mine"), [f"Bearer {token}"])
    except AuthenticationError:
        return True
    return False


def test_the_tokens_that_are_to_be_touched_are_good() -> None:
    assert [is_refused(token_of(algorithm)) for algorithm in ALGORITHMS] == [False] * 4


@given(st.sampled_from(ALGORITHMS), st.integers(0, 2**16), st.integers(0, 6))
def test_a_good_token_with_any_bit_flipped_is_refused(algorithm: str, place: int, bit: int) -> None:
    token = token_of(algorithm)
    at = place % len(token)
    touched = token[:at] + chr(ord(token[at]) ^ 1 << bit) + token[at + 1 :]
    assert is_refused(touched)


@given(st.sampled_from(ALGORITHMS), st.data())
def test_a_good_token_that_is_cut_mended_or_mixed_with_another_is_refused_or_the_same(
    algorithm: str, data: Any
) -> None:
    token, other = token_of(algorithm), token_of(data.draw(st.sampled_from(ALGORITHMS)))
    start = data.draw(st.integers(0, len(token)))
    end = data.draw(st.integers(start, len(token)))
    put = data.draw(st.one_of(st.text(max_size=20), st.sampled_from([other[start:end], other, ".", "=", "A"])))
    touched = token[:start] + put + token[end:]
    assert is_refused(touched) or touched in map(token_of, ALGORITHMS)


@given(st.text(max_size=300))
def test_malformed_token_is_rejected(text: str) -> None:
    assert is_refused(text)


def test_a_bound_token_is_good_with_its_own_certificate_alone() -> None:
    world = World()
    assert world.ask(bound_to()).role == "apiserver"
    assert world.refusal(bound_to(OTHER)) is not None
