"""Keys of a publisher's document: unusable ones are skipped, and reported once."""

import json
from typing import Any

import pytest

from tests.harness.identity import signer
from webhook.authentication.published_keys import PublishedKeys
from webhook.errors import UserError
from webhook.ports import KeyDocument
from webhook.support.condition import Condition

ONE, OTHER = signer().jwk(), signer().jwk()
UNUSABLE = {**OTHER, "use": "enc"}


class Publisher:
    """A KeyPublisher of the given keys, and its reports."""

    def __init__(self, *keys: Any, issuer: str | None = None) -> None:
        self.issuer = issuer
        self.reports: list[str] = []
        condition = Condition(self.reports.append, lambda faults: self.reports.append(f"over: {faults}"))
        self.published = PublishedKeys(self, condition)
        self.publish(*keys)

    def publish(self, *keys: Any) -> None:
        self.content = json.dumps({"keys": keys}).encode()

    async def fetch(self) -> KeyDocument:
        return KeyDocument("the set", self.content, self.issuer)


async def test_unusable_keys_are_skipped_and_reported_once() -> None:
    publisher = Publisher(ONE, UNUSABLE)
    for _ in range(2):
        assert list(await publisher.published.fetch()) == [ONE["kid"]]
    [fault] = publisher.reports
    assert fault == f"the set: keys[1] (kid {OTHER['kid']!r}): use is 'enc': must be sig"
    publisher.publish(ONE)
    await publisher.published.fetch()
    assert publisher.reports == [fault, f"over: {fault}"]


async def test_a_set_without_a_usable_key_is_an_error_that_names_the_faults() -> None:
    with pytest.raises(UserError, match=r"(?s)no key of the set can be used.*use is 'enc'") as failed:
        await Publisher(UNUSABLE).published.fetch()
    assert failed.value.remedy


@pytest.mark.parametrize("issuer", [None, "https://a"])
async def test_keys_are_bound_to_the_issuer_that_the_publisher_names(issuer: str | None) -> None:
    [key] = (await Publisher({**ONE, "iss": "https://elsewhere"}, issuer=issuer).published.fetch()).values()
    assert key.issuer == issuer
