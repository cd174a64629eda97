"""Several key sources as one: colliding key ids, and issuers bound to their own keys."""

import pytest
from msgspec.structs import replace

from tests.authentication.hostile_tokens.token_builder import Source
from tests.harness.identity import signer
from webhook.authentication.tokens.jwks_union import JwksUnion
from webhook.ports import TokenKey

ONE, OTHER = signer(kid="k"), signer(kid="k")


def source(name: str, issuer: str | None = None, *, has_keys: bool = True, trouble: str = "") -> Source:
    made = Source(name, issuer, trouble=trouble)
    if has_keys:
        made.publish(ONE.jwk())
    return made


def test_no_source_hides_anothers_key_of_the_same_name() -> None:
    first, second = source("first"), Source("second")
    second.publish(OTHER.jwk())
    for ring in (JwksUnion([first, second]), JwksUnion([second, first])):
        found = [key.key for key in ring.find("k")]
        assert len(found) == 2
        assert ONE.key.public_key() in found
        assert OTHER.key.public_key() in found
    assert JwksUnion([first]).find("another") == []


def test_its_generation_changes_whenever_that_of_any_source_does() -> None:
    first, second = source("first"), source("second")
    ring = JwksUnion([first, second])
    seen = {ring.generation}
    for one in (first, second, first):
        one.publish(OTHER.jwk())
        seen.add(ring.generation)
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("sources", "issuers", "missing"),
    [
        ([source("file")], {"a"}, []),
        ([source("url", has_keys=False, trouble="away")], {"a"}, ["no keys from url: away"]),
        ([source("cluster", "a"), source("url", has_keys=False)], {"a"}, []),
        ([source("cluster", "a"), source("url", has_keys=False, trouble="x")], {"a", "b"}, ["no keys from url: x"]),
        ([source("cluster", "a"), source("url", has_keys=False, trouble="x")], {None}, ["no keys from url: x"]),
        ([source("cluster", "a", has_keys=False, trouble="x"), source("url")], {"a"}, ["no keys from cluster: x"]),
        ([source("cluster", "a", has_keys=False, trouble="x"), source("url")], {"b"}, ["no keys from cluster: x"]),
        ([source("cluster", has_keys=False, trouble="x"), source("url")], {"a"}, ["no keys from cluster: x"]),
    ],
    ids=[
        "all there",
        "the only one is away",
        "one is away that no such token needs",
        "one is away that an issuer without keys of its own may need",
        "one is away, and any issuer may be meant",
        "the issuer's own is away",
        "one is away whose issuer is another's, and a key without issuer may be meant",
        "one is away whose issuer nobody knows yet",
    ],
)
def test_missing_keys_are_reported_only_where_needed(
    sources: list[Source], issuers: set[str | None], missing: list[str]
) -> None:
    assert JwksUnion(sources).missing_for(issuers) == missing


@pytest.mark.parametrize(
    ("key_issuer", "issuer", "is_believed"),
    [(None, "c", True), (None, "a", False), ("a", "a", True), ("a", "b", False), ("b", "b", True), ("b", "c", False)],
)
def test_key_verifies_its_issuer_only_and_an_unbound_key_the_unclaimed_issuers(
    key_issuer: str | None,
    issuer: str,
    is_believed: bool,  # noqa: FBT001  what a case is about
) -> None:
    key = TokenKey("k", "ES256", ONE.key.public_key(), key_issuer)
    assert JwksUnion([source("url"), source("cluster", "a")]).may_sign(key, issuer) == is_believed


def test_keys_without_issuer_are_unused_while_a_source_may_claim_any() -> None:
    file, cluster = source("file"), source("cluster", has_keys=False)
    cluster.may_claim = True
    ring, key = JwksUnion([file, cluster]), TokenKey("k", "ES256", ONE.key.public_key())
    assert not ring.may_sign(key, "c")
    assert ring.may_sign(replace(key, issuer="c"), "c")
    cluster.may_claim = False
    assert ring.may_sign(key, "c")


def test_keys_are_counted_by_source() -> None:
    assert JwksUnion([source("file"), source("url", has_keys=False)]).counts() == {"file": 1, "url": 0}
