"""Lists in pages: a page that is too large is asked for again with half as many objects, down to one."""

from typing import Any

import pytest

from tests.harness.fake_apiserver import NAMESPACES, FakeApiServer
from webhook.adapters.kubernetes.api import pages
from webhook.adapters.kubernetes.api.collection import Collection
from webhook.adapters.kubernetes.api.objects import Listed, Namespace
from webhook.adapters.kubernetes.api.pages import list_readable, read_pages
from webhook.adapters.kubernetes.api.requests import LongBodyError

KIB = 1 << 10
COLLECTION = Collection(item=Namespace, items=Listed[Namespace], path=NAMESPACES, name="namespaces", right="")


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_MAX", 16)
    monkeypatch.setattr(pages, "_PAGE_BYTES_MAX", 64 * KIB)
    monkeypatch.setattr(pages, "_OBJECT_BYTES_MAX", 128 * KIB)


def put(fake: FakeApiServer, *names: str, size: int = 0) -> None:
    for name in names:
        fake.put(NAMESPACES, name, metadata={"annotations": {"text": "x" * size}})


def list_asked(fake: FakeApiServer) -> list[tuple[str | None, str]]:
    """Return the limit and the place in the list of each request."""
    return [(seen.query.get("limit"), seen.query.get("continue", ":0").partition(":")[2]) for seen in fake.seen]


async def read(client: Any, most: int = 16) -> list[str]:
    return [
        found.metadata.name
        async for page, _ in read_pages(client, COLLECTION, 60, most=most)
        for found in page.items or ()
    ]


async def test_a_page_that_is_too_large_is_asked_for_again_and_later_pages_grow(
    fake: FakeApiServer, client: Any
) -> None:
    first, large, last = (
        [f"{kind}-{n:02}" for n in range(number)] for kind, number in zip("abc", (16, 6, 40), strict=False)
    )
    put(fake, *first)
    put(fake, *large, size=20 * KIB)
    put(fake, *last)
    assert await read(client) == [*first, *large, *last]
    asked = list_asked(fake)
    assert asked[:5] == [("16", "0"), ("16", "16"), ("8", "16"), ("4", "16"), ("2", "16")], "of the same place"
    assert asked[5:] == [("2", "18"), ("2", "20"), ("2", "22"), ("4", "24"), ("8", "28"), ("16", "36"), ("16", "52")]


async def test_a_list_at_once_becomes_pages_if_it_is_too_large(fake: FakeApiServer, client: Any) -> None:
    put(fake, "small")
    number = len((await list_readable(client, COLLECTION, 60)).items)
    assert list_asked(fake) == [(None, "0")]
    put(fake, *(f"large-{n}" for n in range(6)), size=20 * KIB)
    found = await list_readable(client, COLLECTION, 60)
    assert (len(found.items), found.version) == (number + 6, str(fake.revision))
    assert [limit for limit, _ in list_asked(fake)[1:4]] == [None, "16", "8"]


async def test_an_object_may_be_larger_than_a_page_but_not_endless(fake: FakeApiServer, client: Any) -> None:
    put(fake, "huge", size=100 * KIB)
    assert "huge" in await read(client)
    assert "1" in {limit for limit, _ in list_asked(fake)}
    put(fake, "endless", size=200 * KIB)
    with pytest.raises(LongBodyError, match=f"a body of more than {128 * KIB} bytes"):
        await read(client)
