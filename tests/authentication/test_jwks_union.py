"""Several key sources as one: colliding key ids, and issuers bound to their own keys."""

import pytest
from msgspec.structs import replace

from tests.authentication.hostile_tokens.token_builder import Source
from tests.harness.identity import signer
from webhook.authentication.published_keys import JwksUnion
from webhook.ports import TokenKey

ONE, OTHER = signer(kid="k"), signer(kid="k")


def source(name: str, issuer: str | None = None, *, has_keys: bool = True, trouble: str = "") -> Source:
    key_source = Source(name, issuer, trouble=trouble)
    if has_keys:
        key_source.publish(ONE.jwk())
    return key_source


def test_no_source_hides_anothers_key_of_the_same_name() -> None:
    first, second = source("first"), Source("second")
    second.publish(OTHER.jwk())
    for key_union in (JwksUnion([first, second]), JwksUnion([second, first])):
        keys = [key.key for key in key_union.find("k")]
        assert len(keys) == 2
        assert ONE.key.public_key() in keys
        assert OTHER.key.public_key() in keys
    assert JwksUnion([first]).find("another") == []


def test_generation_changes_with_that_of_any_source() -> None:
    first, second = source("first"), source("second")
    key_union = JwksUnion([first, second])
    generations = {key_union.generation}
    for changed in (first, second, first):
        changed.publish(OTHER.jwk())
        generations.add(key_union.generation)
    assert len(generations) == 4


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
        "the only source is unavailable",
        "an unavailable source that no such token needs",
        "an unavailable source that an issuer without own keys may need",
        "an unavailable source, and any issuer",
        "the unavailable source of the issuer",
        "the unavailable source of another issuer, and a key without issuer",
        "an unavailable source with an unknown issuer",
    ],
)
def test_missing_keys_are_reported_only_where_needed(
    sources: list[Source], issuers: set[str | None], missing: list[str]
) -> None:
    assert JwksUnion(sources).list_missing(issuers) == missing


@pytest.mark.parametrize(
    ("key_issuer", "issuer", "may_sign"),
    [(None, "c", True), (None, "a", False), ("a", "a", True), ("a", "b", False), ("b", "b", True), ("b", "c", False)],
)
def test_key_verifies_its_issuer_only_and_an_unbound_key_the_unclaimed_issuers(
    key_issuer: str | None,
    issuer: str,
    may_sign: bool,  # noqa: FBT001  the expectation
) -> None:
    key = TokenKey("k", "ES256", ONE.key.public_key(), key_issuer)
    assert JwksUnion([source("url"), source("cluster", "a")]).may_sign(key, issuer) == may_sign


def test_keys_without_issuer_are_unused_while_a_source_may_claim_any() -> None:
    file, cluster = source("file"), source("cluster", has_keys=False)
    cluster.may_claim = True
    key_union, key = JwksUnion([file, cluster]), TokenKey("k", "ES256", ONE.key.public_key())
    assert not key_union.may_sign(key, "c")
    assert key_union.may_sign(replace(key, issuer="c"), "c")
    cluster.may_claim = False
    assert key_union.may_sign(key, "c")


def test_keys_are_counted_by_source() -> None:
    assert JwksUnion([source("file"), source("url", has_keys=False)]).count_keys() == {"file": 1, "url": 0}
