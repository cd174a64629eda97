"""Namespace labels: from the cache, with one lookup for unknown Namespaces."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.adapters.kubernetes.watching import Loops, Reported
from tests.harness.fake_apiserver import NAMESPACES, FakeApiServer, hang, refuse, say, until
from webhook.adapters.kubernetes import ApiTiming, WatchedNamespaces
from webhook.ports import NamespaceLabels

QUICK = ApiTiming(first_pause_seconds=0.001, longest_pause_seconds=0.01)


class Known(Reported):
    """Namespace labels behind a fake API server."""

    def __init__(self, fake: FakeApiServer, client: Any, loops: Loops, timing: ApiTiming = QUICK) -> None:
        super().__init__()
        self.fake = fake
        self.source = WatchedNamespaces(client, reports=self.reports, timing=timing)
        self._loops = loops

    async def watching(self) -> None:
        self._loops.start(self.source.run())
        await until(lambda: len(self.fake.watching) == 1)


@pytest.fixture
def fake(fake: FakeApiServer) -> FakeApiServer:
    fake.put(NAMESPACES, "payments", labels={"tier": "prod"})
    return fake


@pytest.fixture
def known(fake: FakeApiServer, client: Any, loops: Loops) -> Known:
    return Known(fake, client, loops)


async def test_before_the_first_list_nothing_is_known(known: Known) -> None:
    source: NamespaceLabels = known.source
    assert source.labels("payments") is None


async def test_labels_follow_the_cluster(known: Known) -> None:
    await known.watching()
    assert known.source.labels("payments") == {"tier": "prod"}
    assert known.source.labels("orders") is None
    known.fake.put(NAMESPACES, "orders")
    known.fake.put(NAMESPACES, "payments", labels={"tier": "test"})
    await until(lambda: known.source.labels("payments") == {"tier": "test"})
    assert known.source.labels("orders") == {}, "known, and without labels"
    known.fake.remove(NAMESPACES, "orders")
    await until(lambda: known.source.labels("orders") is None)
    assert known.contacts
    assert known.troubles == []


async def test_namespace_deleted_during_a_watch_gap_is_removed(known: Known) -> None:
    known.fake.put(NAMESPACES, "orders")
    await known.watching()
    known.fake.bookmark()
    known.fake.next("watch", refuse(410))
    known.fake.remove(NAMESPACES, "orders")
    known.fake.watching[0].items = asyncio.Queue()
    known.fake.end()
    await until(lambda: known.source.labels("orders") is None)
    assert known.source.labels("payments") == {"tier": "prod"}


async def test_lookup_adds_an_uncached_namespace(known: Known) -> None:
    assert await known.source.lookup("payments") == {"tier": "prod"}
    assert known.source.labels("payments") == {"tier": "prod"}
    await known.watching()
    known.fake.put(NAMESPACES, "payments", labels={"tier": "test"})
    await until(lambda: known.source.labels("payments") == {"tier": "test"})


async def test_a_look_asks_for_that_one_by_a_list_and_needs_no_right_of_its_own(known: Known) -> None:
    await known.source.lookup("payments")
    [seen] = known.fake.seen
    assert (seen.verb, seen.path, seen.query) == ("list", NAMESPACES, {"fieldSelector": "metadata.name=payments"})


async def test_lookup_of_an_absent_namespace_finds_nothing(known: Known) -> None:
    assert await known.source.lookup("orders") is None
    assert known.source.labels("orders") is None
    assert known.troubles == []


@pytest.mark.parametrize(
    "name", ["", "-a", "a-", "A", "a" * 64, "a/../b", "a,metadata.name!=b", "a\n", "a b", "a=b", "\u00e4"]
)
async def test_invalid_name_is_not_requested(known: Known, name: str) -> None:
    assert await known.source.lookup(name) is None
    assert known.fake.seen == []


async def test_looks_for_one_name_share_one_request(known: Known) -> None:
    found = await asyncio.gather(*(known.source.lookup("payments") for _ in range(20)))
    assert found == [{"tier": "prod"}] * 20
    assert len(known.fake.seen) == 1
    await asyncio.gather(known.source.lookup("orders"), known.source.lookup("stock"))
    assert len(known.fake.seen) == 3


async def test_a_caller_that_gives_up_does_not_stop_the_look(known: Known) -> None:
    impatient = asyncio.create_task(known.source.lookup("payments"))
    patient = asyncio.create_task(known.source.lookup("payments"))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient == {"tier": "prod"}
    assert impatient.cancelled()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (hang, "no answer in time"),
        (refuse(403, "forbidden"), "HTTP 403: forbidden: grant the right to list and watch namespaces"),
        (refuse(500), "HTTP 500"),
        (say(b"<html>"), "not understood"),
    ],
)
async def test_a_look_without_an_answer_finds_nothing_in_time_and_is_reported_once(
    fake: FakeApiServer, client: Any, loops: Loops, fault: Any, words: str
) -> None:
    known = Known(fake, client, loops, replace(QUICK, look_seconds=1))
    fake.always["list"] = fault
    assert await known.source.lookup("payments") is None
    assert await known.source.lookup("orders") is None
    [trouble] = known.troubles
    assert trouble.startswith("cannot look up a namespace: ")
    assert words in trouble
    del fake.always["list"]
    assert await known.source.lookup("payments") == {"tier": "prod"}
    fake.next("list", fault)
    assert await known.source.lookup("orders") is None
    assert len(known.troubles) == 2, "it had been over"


async def test_a_refusal_that_repeats_the_name_is_reported_once_all_the_same(known: Known) -> None:
    for name in ("orders", "stock"):
        known.fake.next("list", refuse(403, f'namespaces "{name}" is forbidden: User "u" cannot list'))
        assert await known.source.lookup(name) is None
    [trouble] = known.troubles
    assert trouble.startswith('cannot look up a namespace: HTTP 403: namespaces is forbidden: User "u" cannot list: ')


async def test_what_the_watch_has_brought_meanwhile_is_newer_than_what_a_look_found(known: Known) -> None:
    release = asyncio.Event()

    async def slow(request: Any) -> Any:
        answer = await known.fake.list(request)
        await release.wait()
        return answer

    known.fake.next("list", slow)
    look = asyncio.create_task(known.source.lookup("payments"))
    await until(lambda: len(known.fake.seen) == 1)
    known.fake.put(NAMESPACES, "payments", labels={"tier": "test"})
    await known.watching()
    release.set()
    assert await look == {"tier": "test"}
    assert known.source.labels("payments") == {"tier": "test"}


async def test_stopping_does_not_wait_for_a_look(fake: FakeApiServer, client: Any, loops: Loops) -> None:
    known = Known(fake, client, loops, replace(QUICK, look_seconds=3600))
    await known.watching()
    known.fake.next("list", hang)
    look = asyncio.create_task(known.source.lookup("orders"))
    await until(lambda: known.fake.verbs().count("list") == 2)
    await loops.stop()
    assert await look is None


async def test_thousands_of_namespaces_are_one_list(known: Known) -> None:
    for number in range(5000):
        known.fake.put(NAMESPACES, f"team-{number}", labels={"team": str(number)}, spec={"finalizers": ["kubernetes"]})
    await known.watching()
    assert known.source.labels("team-4999") == {"team": "4999"}
    assert known.fake.verbs() == ["list", "watch"]
