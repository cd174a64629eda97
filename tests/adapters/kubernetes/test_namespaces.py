"""Namespace labels: from the cache, with one lookup for unknown Namespaces."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.adapters.kubernetes.watching import Loops, Reported
from tests.harness.fake_apiserver import NAMESPACES, FakeApiServer, hang, refuse, say, wait_until
from webhook.adapters.kubernetes import ApiTiming, WatchedNamespaces
from webhook.ports import NamespaceLabels

QUICK = ApiTiming(first_pause_seconds=0.001, pause_seconds_max=0.01)


class CachedNamespaces(Reported):
    """Namespace labels behind a fake API server."""

    def __init__(self, fake: FakeApiServer, client: Any, loops: Loops, timing: ApiTiming = QUICK) -> None:
        super().__init__()
        self.fake = fake
        self.source = WatchedNamespaces(client, reports=self.reports, timing=timing)
        self._loops = loops

    async def start_watching(self) -> None:
        self._loops.start(self.source.run())
        await wait_until(lambda: len(self.fake.watching) == 1)


@pytest.fixture
def fake(fake: FakeApiServer) -> FakeApiServer:
    fake.put(NAMESPACES, "payments", labels={"tier": "prod"})
    return fake


@pytest.fixture
def namespaces(fake: FakeApiServer, client: Any, loops: Loops) -> CachedNamespaces:
    return CachedNamespaces(fake, client, loops)


async def test_labels_are_unknown_before_the_first_list(namespaces: CachedNamespaces) -> None:
    source: NamespaceLabels = namespaces.source
    assert source.find_labels("payments") is None


async def test_labels_follow_the_watch(namespaces: CachedNamespaces) -> None:
    await namespaces.start_watching()
    assert namespaces.source.find_labels("payments") == {"tier": "prod"}
    assert namespaces.source.find_labels("orders") is None
    namespaces.fake.put(NAMESPACES, "orders")
    namespaces.fake.put(NAMESPACES, "payments", labels={"tier": "test"})
    await wait_until(lambda: namespaces.source.find_labels("payments") == {"tier": "test"})
    assert namespaces.source.find_labels("orders") == {}, "present, and without labels"
    namespaces.fake.remove(NAMESPACES, "orders")
    await wait_until(lambda: namespaces.source.find_labels("orders") is None)
    assert namespaces.contacts
    assert namespaces.troubles == []


async def test_namespace_deleted_during_a_watch_gap_is_removed(namespaces: CachedNamespaces) -> None:
    namespaces.fake.put(NAMESPACES, "orders")
    await namespaces.start_watching()
    namespaces.fake.bookmark()
    namespaces.fake.fail_next("watch", refuse(410))
    namespaces.fake.remove(NAMESPACES, "orders")
    namespaces.fake.watching[0].items = asyncio.Queue()
    namespaces.fake.end()
    await wait_until(lambda: namespaces.source.find_labels("orders") is None)
    assert namespaces.source.find_labels("payments") == {"tier": "prod"}


async def test_lookup_adds_an_uncached_namespace(namespaces: CachedNamespaces) -> None:
    assert await namespaces.source.look_up_labels("payments") == {"tier": "prod"}
    assert namespaces.source.find_labels("payments") == {"tier": "prod"}
    await namespaces.start_watching()
    namespaces.fake.put(NAMESPACES, "payments", labels={"tier": "test"})
    await wait_until(lambda: namespaces.source.find_labels("payments") == {"tier": "test"})


async def test_lookup_is_a_list_with_a_field_selector(namespaces: CachedNamespaces) -> None:
    await namespaces.source.look_up_labels("payments")
    [seen] = namespaces.fake.seen
    assert (seen.verb, seen.path, seen.query) == ("list", NAMESPACES, {"fieldSelector": "metadata.name=payments"})


async def test_lookup_of_an_absent_namespace_finds_nothing(namespaces: CachedNamespaces) -> None:
    assert await namespaces.source.look_up_labels("orders") is None
    assert namespaces.source.find_labels("orders") is None
    assert namespaces.troubles == []


@pytest.mark.parametrize(
    "name", ["", "-a", "a-", "A", "a" * 64, "a/../b", "a,metadata.name!=b", "a\n", "a b", "a=b", "\u00e4"]
)
async def test_invalid_name_is_not_requested(namespaces: CachedNamespaces, name: str) -> None:
    assert await namespaces.source.look_up_labels(name) is None
    assert namespaces.fake.seen == []


async def test_concurrent_lookups_share_one_request(namespaces: CachedNamespaces) -> None:
    found = await asyncio.gather(*(namespaces.source.look_up_labels("payments") for _ in range(20)))
    assert found == [{"tier": "prod"}] * 20
    assert len(namespaces.fake.seen) == 1
    await asyncio.gather(namespaces.source.look_up_labels("orders"), namespaces.source.look_up_labels("stock"))
    assert len(namespaces.fake.seen) == 3


async def test_cancelled_caller_does_not_stop_the_lookup(namespaces: CachedNamespaces) -> None:
    impatient = asyncio.create_task(namespaces.source.look_up_labels("payments"))
    patient = asyncio.create_task(namespaces.source.look_up_labels("payments"))
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
async def test_failed_lookup_returns_in_time_and_is_reported_once(
    fake: FakeApiServer, client: Any, loops: Loops, fault: Any, words: str
) -> None:
    namespaces = CachedNamespaces(fake, client, loops, replace(QUICK, look_seconds=1))
    fake.always["list"] = fault
    assert await namespaces.source.look_up_labels("payments") is None
    assert await namespaces.source.look_up_labels("orders") is None
    [trouble] = namespaces.troubles
    assert trouble.startswith("cannot look up a namespace: ")
    assert words in trouble
    del fake.always["list"]
    assert await namespaces.source.look_up_labels("payments") == {"tier": "prod"}
    fake.fail_next("list", fault)
    assert await namespaces.source.look_up_labels("orders") is None
    assert len(namespaces.troubles) == 2, "the first trouble had ended"


async def test_refusals_that_differ_by_name_are_reported_once(namespaces: CachedNamespaces) -> None:
    for name in ("orders", "stock"):
        namespaces.fake.fail_next("list", refuse(403, f'namespaces "{name}" is forbidden: User "u" cannot list'))
        assert await namespaces.source.look_up_labels(name) is None
    [trouble] = namespaces.troubles
    assert trouble.startswith('cannot look up a namespace: HTTP 403: namespaces is forbidden: User "u" cannot list: ')


async def test_watch_result_overrides_an_older_lookup(namespaces: CachedNamespaces) -> None:
    release = asyncio.Event()

    async def list_slowly(request: Any) -> Any:
        answer = await namespaces.fake.list(request)
        await release.wait()
        return answer

    namespaces.fake.fail_next("list", list_slowly)
    lookup = asyncio.create_task(namespaces.source.look_up_labels("payments"))
    await wait_until(lambda: len(namespaces.fake.seen) == 1)
    namespaces.fake.put(NAMESPACES, "payments", labels={"tier": "test"})
    await namespaces.start_watching()
    release.set()
    assert await lookup == {"tier": "test"}
    assert namespaces.source.find_labels("payments") == {"tier": "test"}


async def test_stop_does_not_wait_for_a_lookup(fake: FakeApiServer, client: Any, loops: Loops) -> None:
    namespaces = CachedNamespaces(fake, client, loops, replace(QUICK, look_seconds=3600))
    await namespaces.start_watching()
    namespaces.fake.fail_next("list", hang)
    lookup = asyncio.create_task(namespaces.source.look_up_labels("orders"))
    await wait_until(lambda: namespaces.fake.verbs().count("list") == 2)
    await loops.stop()
    assert await lookup is None


async def test_five_thousand_namespaces_need_one_list(namespaces: CachedNamespaces) -> None:
    for number in range(5000):
        namespaces.fake.put(
            NAMESPACES, f"team-{number}", labels={"team": str(number)}, spec={"finalizers": ["kubernetes"]}
        )
    await namespaces.start_watching()
    assert namespaces.source.find_labels("team-4999") == {"team": "4999"}
    assert namespaces.fake.verbs() == ["list", "watch"]


async def test_namespaces_with_a_value_too_many_are_marked_while_they_are(namespaces: CachedNamespaces) -> None:
    for name, team in (("shop", "blue"), ("bank", "red")):
        namespaces.fake.put(NAMESPACES, name, labels={"team": team})
    await namespaces.start_watching()
    namespaces.source.set_team_limits({"team": 1})
    mark = {"team (others)": ""}
    assert namespaces.source.find_labels("bank") == {"team": "red"} | mark
    assert namespaces.source.find_labels("shop") == {"team": "blue"}
    namespaces.fake.remove(NAMESPACES, "shop")
    await wait_until(lambda: namespaces.source.find_labels("bank") == {"team": "red"})
    namespaces.fake.put(NAMESPACES, "lab", labels={"team": "green"})
    await wait_until(lambda: namespaces.source.find_labels("bank") == {"team": "red"} | mark)
    namespaces.source.set_team_limits({})
    assert namespaces.source.find_labels("bank") == {"team": "red"}
