"""Overrides in their ConfigMap: followed by a server, changed by commands with the rights of whoever calls them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.fake_apiserver import CONFIGMAPS, FakeApiServer, drop, fake_apiserver, refuse, until
from tests.harness.overrides import Still, Told, entry
from webhook.adapters.kubernetes import ApiTiming, ConfigMapBook, ConfigMapOverrides, connect
from webhook.errors import UserError
from webhook.policy.active_overrides import ActiveOverrides
from webhook.ports import Observer, OverridesBook, WatchReports

NAME, KEY, THIS = "podgate-overrides", "overrides.yaml", "configmap podgate-system/podgate-overrides"
QUICK = ApiTiming(first_pause_seconds=0.001, longest_pause_seconds=0.01, cool_down_seconds=0)


class Followed:
    """A source behind a fake API server, with what it told."""

    def __init__(self, fake: FakeApiServer, client: Any) -> None:
        self.fake = fake
        self.told = Told()
        self.troubles: list[str] = []
        observer: Observer = self.told
        self.keeper = ActiveOverrides(observer, Still(), THIS)
        reports = WatchReports(lambda: None, self.troubles.append, lambda _: None)
        self.source = ConfigMapOverrides(client, self.keeper, reports=reports, timing=QUICK)

    def live(self) -> list[str]:
        return sorted(self.keeper.current().entries)

    def apply(self, text: str) -> None:
        self.fake.put(CONFIGMAPS, NAME, data={KEY: text})


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeApiServer]:
    async with fake_apiserver(tmp_path) as server:
        yield server


@pytest.fixture
async def client(fake: FakeApiServer, tmp_path: Path) -> AsyncIterator[Any]:
    assert fake.url
    async with await connect(tmp_path / "kubeconfig") as connected:
        yield connected


@pytest.fixture
async def followed(fake: FakeApiServer, client: Any) -> AsyncIterator[Followed]:
    made = Followed(fake, client)
    task = asyncio.create_task(made.source.run())
    await until(lambda: len(fake.watching) == 1)
    yield made
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


async def test_that_there_is_no_configmap_is_usual(followed: Followed) -> None:
    assert followed.told.loaded == [[]]
    assert followed.keeper.last_errors() == ()
    assert followed.troubles == []
    assert followed.fake.last("watch").query["fieldSelector"] == f"metadata.name={NAME}"


async def test_what_is_applied_is_in_force_until_it_is_deleted(followed: Followed) -> None:
    followed.apply(entry())
    await until(lambda: followed.live() == ["payment-api"])
    followed.apply(entry() + entry("web"))
    await until(lambda: followed.live() == ["payment-api", "web"])
    followed.fake.remove(CONFIGMAPS, NAME)
    await until(lambda: followed.live() == [])


async def test_a_bad_document_keeps_what_is_in_force_and_names_its_place(followed: Followed) -> None:
    followed.apply(entry())
    await until(lambda: followed.live() == ["payment-api"])
    followed.apply("- {service: web}")
    await until(lambda: len(followed.told.failed) == 1)
    assert followed.live() == ["payment-api"]
    assert followed.keeper.last_errors()[0].startswith(f"{THIS}: {KEY}:1:3: [0]")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"data": {"override.yaml": entry()}}, f"{THIS}: data['{KEY}'] is missing, there is override.yaml"),
        ({"binaryData": {KEY: "/w=="}}, f"{THIS}: binaryData['{KEY}']: it is UTF-8 text"),
    ],
)
async def test_a_document_in_the_wrong_place_is_told(followed: Followed, fields: dict[str, Any], said: str) -> None:
    followed.fake.put(CONFIGMAPS, NAME, **fields)
    await until(lambda: len(followed.told.failed) == 1)
    assert followed.keeper.last_errors()[0].startswith(said)


async def test_an_empty_configmap_is_no_override(followed: Followed) -> None:
    followed.apply(entry())
    await until(lambda: followed.live() == ["payment-api"])
    followed.fake.put(CONFIGMAPS, NAME, data=None)
    await until(lambda: followed.live() == [])
    assert followed.keeper.last_errors() == ()


async def test_who_starts_in_the_middle_of_a_night_knows_what_holds_before_the_first_review(
    fake: FakeApiServer, client: Any
) -> None:
    made = Followed(fake, client)
    made.apply(entry())
    await made.source.refresh()
    assert made.live() == ["payment-api"]
    fake.next("list", drop)
    await made.source.refresh()
    assert made.live() == ["payment-api"]


async def test_a_missing_right_is_named(fake: FakeApiServer, client: Any) -> None:
    fake.always["list"] = refuse(403, "forbidden")
    made = Followed(fake, client)
    task = asyncio.create_task(made.source.run())
    await until(lambda: bool(made.troubles))
    task.cancel()
    await asyncio.wait([task])
    right = f"list and watch configmaps named {NAME} in podgate-system"
    assert made.troubles[0].startswith(f"cannot list {THIS}: HTTP 403: forbidden: grant the right to {right}")


async def test_a_book_creates_the_configmap_and_keeps_what_else_is_in_it(fake: FakeApiServer, client: Any) -> None:
    book: OverridesBook = ConfigMapBook(client)
    assert await book.read() == b""
    assert await book.write(entry().encode())
    made = fake.stored(CONFIGMAPS, NAME)
    assert made is not None
    assert made["data"] == {KEY: entry()}
    assert made["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "podgate"
    fake.put(CONFIGMAPS, NAME, data={KEY: entry(), "note": "n"}, labels={"ours": "yes"})
    assert await book.read() == entry().encode()
    assert await book.write(b"[]\n")
    kept = fake.stored(CONFIGMAPS, NAME)
    assert kept is not None
    assert (kept["data"], kept["metadata"]["labels"]) == ({KEY: "[]\n", "note": "n"}, {"ours": "yes"})


async def test_a_book_that_others_have_changed_meanwhile_writes_nothing(fake: FakeApiServer, client: Any) -> None:
    one, other = ConfigMapBook(client), ConfigMapBook(client)
    await one.read()
    await other.read()
    assert await one.write(b"one")
    assert not await other.write(b"other"), "it was created by somebody else"
    await other.read()
    await one.read()
    assert await one.write(b"two")
    assert not await other.write(b"other"), "it was changed by somebody else"
    found = fake.stored(CONFIGMAPS, NAME)
    assert found is not None
    assert found["data"][KEY] == "two"


@pytest.mark.parametrize(("verb", "exists"), [("get", True), ("create", False), ("update", True)])
async def test_a_book_names_the_right_that_is_missing(
    fake: FakeApiServer, client: Any, verb: str, *, exists: bool
) -> None:
    if exists:
        fake.put(CONFIGMAPS, NAME, data={KEY: entry()})
    fake.always[verb] = refuse(403, "forbidden")
    book = ConfigMapBook(client)

    async def change() -> None:
        await book.read()
        await book.write(b"[]")

    with pytest.raises(UserError, match=f"grant the right to {verb} configmaps"):
        await change()


async def test_a_book_has_the_policy_beside_it(fake: FakeApiServer, client: Any) -> None:
    book = ConfigMapBook(client)
    assert await book.policy() is None
    fake.put(CONFIGMAPS, "podgate-policy", data={"policy.yaml": "kind: Policy\n"})
    assert await book.policy() == b"kind: Policy\n"
