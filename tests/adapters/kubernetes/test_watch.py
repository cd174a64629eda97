"""A watch continues through every behaviour of an API server or a proxy."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.adapters.kubernetes.watching import Loops, Reported
from tests.harness.fake_apiserver import NAMESPACES, FakeApiServer, drop, hang, refuse, say, until
from webhook.adapters.kubernetes.api import requests
from webhook.adapters.kubernetes.api.client import connect
from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot
from webhook.adapters.kubernetes.api.objects import Listed, Namespace
from webhook.adapters.kubernetes.api.requests import GarbledError
from webhook.adapters.kubernetes.api.timing import ApiTiming, Backoff
from webhook.adapters.kubernetes.api.watch import Lines, Watch, WatchHandler
from webhook.ports import WatchReports

COLLECTION = Collection(
    item=Namespace, items=Listed[Namespace], path=NAMESPACES, name="namespaces", right="list and watch namespaces"
)
# Never healthy: no test's result hangs on how long something took.
QUICK = ApiTiming(first_pause_seconds=0.001, longest_pause_seconds=0.01, healthy_seconds=3600)


class Follower(Reported):
    """A watch that runs, and what it has brought."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, dict[str, str]] = {}
        self.lists: list[str] = []
        self.changes: list[tuple[str, str]] = []
        self.taking: Callable[[], Awaitable[None]] | None = None

    async def all(self, snapshot: ListSnapshot[Namespace]) -> None:
        self.lists.append(snapshot.version)
        self.names = {item.metadata.name: item.metadata.labels or {} for item in snapshot.items}

    async def one(self, changed: Namespace, deleted: bool) -> None:  # noqa: FBT001  the watch's word
        if self.taking is not None:
            await self.taking()
        self.changes.append((changed.metadata.name, "gone" if deleted else "there"))
        if deleted:
            del self.names[changed.metadata.name]
        else:
            self.names[changed.metadata.name] = changed.metadata.labels or {}


@pytest.fixture
def fake(fake: FakeApiServer) -> FakeApiServer:
    fake.put(NAMESPACES, "payments", labels={"tier": "prod"})
    return fake


@pytest.fixture
def follow(client: Any, loops: Loops) -> Callable[..., Follower]:
    """Return what starts a watch."""

    def start(timing: ApiTiming = QUICK) -> Follower:
        follower = Follower()
        watch = Watch(
            client,
            COLLECTION,
            WatchHandler(follower.all, follower.one),
            reports=follower.reports,
            timing=timing,
        )
        loops.start(watch.run())
        return follower

    return start


@pytest.fixture
async def watching(fake: FakeApiServer, follow: Callable[..., Follower]) -> Follower:
    follower = follow()
    await until(lambda: len(fake.watching) == 1)
    return follower


async def test_it_lists_what_is_there_and_then_sees_every_change(fake: FakeApiServer, watching: Follower) -> None:
    assert watching.names == {"payments": {"tier": "prod"}}
    fake.put(NAMESPACES, "payments", labels={"tier": "test"})
    fake.put(NAMESPACES, "orders")
    await until(lambda: watching.names == {"payments": {"tier": "test"}, "orders": {}})
    fake.remove(NAMESPACES, "payments")
    await until(lambda: watching.names == {"orders": {}})
    assert fake.verbs() == ["list", "watch"]
    assert watching.troubles == []


async def test_the_list_is_a_consistent_read_and_the_watch_begins_at_its_version(
    fake: FakeApiServer, watching: Follower
) -> None:
    assert fake.last("list").query == {}
    query = fake.last("watch").query
    assert query["resourceVersion"] == watching.lists[0] == str(fake.revision)
    assert query["allowWatchBookmarks"] == "true"
    assert 300 <= int(query["timeoutSeconds"]) <= 600
    assert fake.last("watch").headers["User-Agent"].startswith("podgate/")


@pytest.mark.parametrize("ending", ["cut", "end"])
async def test_a_watch_that_ends_goes_on_from_the_last_version_it_brought(
    fake: FakeApiServer, watching: Follower, ending: str
) -> None:
    fake.put(NAMESPACES, "orders")
    await until(lambda: "orders" in watching.names)
    last = fake.revision
    getattr(fake, ending)()
    fake.put(NAMESPACES, "stock")  # while nobody watches
    await until(lambda: "stock" in watching.names)
    assert fake.last("watch").query["resourceVersion"] == str(last)
    assert fake.verbs() == ["list", "watch", "watch"]
    assert watching.troubles == []


async def test_a_bookmark_moves_the_version(fake: FakeApiServer, watching: Follower) -> None:
    fake.revision += 1000  # what happened to other kinds of objects
    contacts = watching.contacts
    fake.bookmark()
    await until(lambda: watching.contacts > contacts)
    fake.compact()
    fake.cut()
    await until(lambda: fake.verbs().count("watch") == 2)
    assert fake.last("watch").query["resourceVersion"] == str(fake.revision)
    assert watching.changes == []


async def test_a_version_too_old_reported_by_an_event_leads_to_a_list(fake: FakeApiServer, watching: Follower) -> None:
    fake.bookmark()
    fake.cut()
    fake.remove(NAMESPACES, "payments")
    fake.put(NAMESPACES, "orders")
    fake.compact()
    await until(lambda: watching.names == {"orders": {}})
    assert watching.lists[-1] == str(fake.revision)
    assert watching.changes == [], "what vanished unseen is gone because the list does not have it"
    assert watching.troubles == [], "that is how it is meant to be"


async def test_a_version_too_old_reported_by_the_status_leads_to_a_list(
    fake: FakeApiServer, watching: Follower
) -> None:
    fake.bookmark()
    fake.next("watch", refuse(410, "too old resource version"))
    fake.end()
    await until(lambda: fake.verbs() == ["list", "watch", "watch", "list", "watch"])
    assert watching.troubles == []


async def test_an_open_watch_that_is_reported_its_version_expired_leads_to_a_list(
    fake: FakeApiServer, watching: Follower
) -> None:
    fake.bookmark()
    fake.error(410, "etcd event received with PrevKv=nil")
    await until(lambda: fake.verbs() == ["list", "watch", "list", "watch"])
    assert watching.troubles == []


async def test_a_list_whose_version_is_too_old_at_once_is_reported(
    fake: FakeApiServer, follow: Callable[..., Follower]
) -> None:
    fake.always["watch"] = refuse(410, "too old resource version")
    follower = follow()
    await until(lambda: len(follower.lists) > 2)
    assert follower.troubles == ["cannot watch namespaces: HTTP 410: too old resource version"]


async def test_another_error_in_the_stream_is_reported_and_leads_to_a_list(
    fake: FakeApiServer, watching: Follower
) -> None:
    fake.error(500, "storage is unwell")
    await until(lambda: len(watching.lists) == 2)
    assert watching.troubles == ["cannot watch namespaces: HTTP 500: storage is unwell"]


@pytest.mark.parametrize(
    "line",
    [
        b"<html>\n",
        b'{"type": "ADDED"}\n',
        b'{"type": "ADDED", "object": {"metadata": {"name": 5}}}\n',
        b'{"type": "RENAMED", "object": {}}\n',
        b'{"type": "ADDED", "object": {"metadata": {"name": "\xff"}}}\n',
    ],
)
async def test_what_is_not_understood_is_reported_and_leads_to_a_list(
    fake: FakeApiServer, watching: Follower, line: bytes
) -> None:
    fake.bookmark()
    fake.send(line)
    fake.put(NAMESPACES, "orders")
    await until(lambda: "orders" in watching.names)
    assert len(watching.lists) == 2
    assert len(watching.troubles) == 1
    assert watching.troubles[0].startswith("cannot watch namespaces: ")


async def test_half_a_line_at_the_end_counts_for_nothing(fake: FakeApiServer, watching: Follower) -> None:
    fake.bookmark()
    fake.send(b'{"type": "ADDED", "object": {"metadata": {"name": "half", "resourceVersion": "9')
    fake.end()
    fake.put(NAMESPACES, "orders")
    await until(lambda: "orders" in watching.names)
    assert "half" not in watching.names
    assert len(watching.lists) == 1


async def test_a_change_of_several_megabytes_in_small_pieces_is_one_change(
    fake: FakeApiServer, watching: Follower
) -> None:
    huge = b'{"type":"ADDED","object":{"metadata":{"name":"huge","resourceVersion":"900"},"spec":"' + b"x" * (5 << 20)
    for begin in range(0, len(huge), 100_000):
        fake.send(huge[begin : begin + 100_000])
    fake.send(b'"}}\n')
    await until(lambda: "huge" in watching.names)


def test_a_line_without_an_end_is_given_up() -> None:
    lines = Lines()
    for _ in range(20):
        assert list(lines.feed(b"x" * (1 << 20))) == []
    with pytest.raises(GarbledError, match="a line of more than"):
        list(lines.feed(b"x"))


def test_lines_are_found_wherever_the_pieces_are_cut() -> None:
    text = b"one\n\ntwo\r\nthree\n"
    for size in range(1, len(text) + 1):
        lines = Lines()
        pieces = [text[begin : begin + size] for begin in range(0, len(text), size)]
        assert [line for piece in pieces for line in lines.feed(piece)] == [b"one", b"two", b"three"]


async def test_a_silent_watch_is_given_up_and_goes_on(fake: FakeApiServer, follow: Callable[..., Follower]) -> None:
    follower = follow(replace(QUICK, inactivity_seconds=0.05, healthy_seconds=0.01))
    await until(lambda: fake.verbs().count("watch") == 3)
    assert fake.verbs()[:5] == ["list", "watch", "list", "watch", "list"], "one that brought nothing is not trusted"
    assert follower.troubles == [], "where nothing changes there is nothing to bring"


async def test_a_silent_watch_that_had_brought_something_goes_on_from_there(
    fake: FakeApiServer, follow: Callable[..., Follower]
) -> None:
    async def bring_and_fall_silent(request: web.Request) -> web.StreamResponse:
        await say(b'{"type": "ADDED", "object": {"metadata": {"name": "orders", "resourceVersion": "150"}}}\n')(request)
        return await hang(request)

    fake.next("watch", bring_and_fall_silent)
    follower = follow(replace(QUICK, inactivity_seconds=1))
    await until(lambda: fake.verbs().count("watch") == 2)
    assert fake.verbs() == ["list", "watch", "watch"]
    assert fake.last("watch").query["resourceVersion"] == "150"
    assert follower.names.keys() == {"payments", "orders"}


async def test_a_store_that_went_back_in_time_is_found_out(
    fake: FakeApiServer, follow: Callable[..., Follower]
) -> None:
    """A watch from a version that is yet to come brings nothing, not even bookmarks."""
    fake.next("watch", say(b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "5000"}}}\n'))
    follower = follow(replace(QUICK, inactivity_seconds=0.05))
    await until(lambda: len(fake.watching) == 1)
    assert fake.last("watch").query["resourceVersion"] == "5000"
    fake.put(NAMESPACES, "orders")
    await until(lambda: "orders" in follower.names)


@pytest.mark.parametrize("ending", [say(b""), say(b"", cut=True), say(b"\n", cut=True)])
async def test_a_watch_that_never_brings_anything_is_reported_and_lists_go_on(
    fake: FakeApiServer, follow: Callable[..., Follower], ending: Callable[..., Awaitable[object]]
) -> None:
    fake.always["watch"] = ending
    follower = follow()
    await until(lambda: len(follower.lists) > 1)
    fake.put(NAMESPACES, "orders")
    await until(lambda: "orders" in follower.names)
    assert len(follower.troubles) == 1
    assert follower.troubles[0].startswith("cannot watch namespaces: it ended before it had brought anything: ")


async def test_a_missing_right_to_list_is_named_once_and_asked_for_again(
    fake: FakeApiServer, follow: Callable[..., Follower]
) -> None:
    fake.always["list"] = refuse(403, 'User "u" cannot list resource "namespaces"')
    follower = follow()
    await until(lambda: len(fake.seen) > 3)
    [trouble] = follower.troubles
    assert trouble == (
        'cannot list namespaces: HTTP 403: User "u" cannot list resource "namespaces":'
        " grant the right to list and watch namespaces, unless the API server has only just started"
    )
    assert follower.contacts == 0
    del fake.always["list"]
    await until(lambda: "payments" in follower.names)


async def test_a_missing_right_to_watch_is_named_and_lists_bring_the_changes(
    fake: FakeApiServer, follow: Callable[..., Follower]
) -> None:
    fake.always["watch"] = refuse(403, "cannot watch")
    follower = follow()
    await until(lambda: "payments" in follower.names)
    fake.put(NAMESPACES, "orders")
    await until(lambda: "orders" in follower.names)
    [trouble] = follower.troubles
    assert trouble.startswith("cannot watch namespaces: HTTP 403: cannot watch: grant the right to list and watch ")


async def test_credentials_that_are_not_accepted_are_reported(
    fake: FakeApiServer, follow: Callable[..., Follower]
) -> None:
    fake.always["list"] = refuse(401, "Unauthorized")
    follower = follow()
    await until(lambda: len(fake.seen) > 2)
    [trouble] = follower.troubles
    assert trouble.startswith("cannot list namespaces: HTTP 401: Unauthorized: the credentials are not accepted")


async def test_a_busy_server_is_asked_again_from_the_same_version(fake: FakeApiServer, watching: Follower) -> None:
    fake.bookmark()
    fake.next("watch", refuse(429, "too many requests"), refuse(429, "too many requests"))
    fake.end()
    await until(lambda: fake.verbs() == ["list", "watch", "watch", "watch", "watch"])
    assert watching.troubles == ["cannot watch namespaces: HTTP 429: too many requests"]


async def test_an_api_server_that_is_away_is_asked_again_from_the_same_version(
    fake: FakeApiServer, watching: Follower
) -> None:
    fake.bookmark()
    fake.next("watch", drop, drop, drop)
    fake.end()
    await until(lambda: len(fake.watching) == 1 and len(fake.seen) > 4)
    assert set(fake.verbs()[1:]) == {"watch"}
    assert len(watching.troubles) == 1


async def test_a_proxys_error_page_is_an_error_like_any_other(
    fake: FakeApiServer, follow: Callable[..., Follower]
) -> None:
    async def bad_gateway(_: web.Request) -> web.StreamResponse:
        return web.Response(status=502, text="<html>" + "x" * 1000, content_type="text/html")

    fake.next("list", bad_gateway)
    follower = follow()
    await until(lambda: "payments" in follower.names)
    assert follower.troubles == ["cannot list namespaces: HTTP 502: Bad Gateway"]


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"metadata": {}, "items": []}'])
async def test_a_list_that_is_none_is_reported_and_asked_for_again(
    fake: FakeApiServer, follow: Callable[..., Follower], body: bytes
) -> None:
    fake.next("list", say(body))
    follower = follow()
    await until(lambda: "payments" in follower.names)
    assert len(follower.troubles) == 1
    assert len(follower.lists) == 1


async def test_an_empty_list_that_go_writes_as_null_is_empty(
    fake: FakeApiServer, follow: Callable[..., Follower]
) -> None:
    fake.next("list", say(b'{"metadata": {"resourceVersion": "101"}, "items": null}'))
    follower = follow()
    await until(lambda: len(fake.watching) == 1)
    assert follower.names == {}


async def test_a_list_that_hangs_or_breaks_off_is_given_up(
    fake: FakeApiServer, follow: Callable[..., Follower]
) -> None:
    fake.next("list", hang, drop, drop, say(b'{"metadata": {"resourceVersion": "1"}, "items": [', cut=True))
    follower = follow(replace(QUICK, request_seconds=1))
    await until(lambda: "payments" in follower.names)
    assert follower.troubles[0] == "cannot list namespaces: no answer in time"
    assert "disconnected" in follower.troubles[1], "aiohttp itself asks once more"
    assert "not completed" in follower.troubles[2]


async def test_a_trouble_that_comes_back_is_reported_again(
    fake: FakeApiServer, follow: Callable[..., Follower]
) -> None:
    fake.next("list", refuse(500), refuse(500), refuse(501), refuse(500))
    follower = follow()
    await until(lambda: "payments" in follower.names)
    assert follower.troubles == [f"cannot list namespaces: HTTP {code}" for code in (500, 501, 500)]
    fake.next("list", refuse(500))
    await until(lambda: len(fake.watching) == 1)
    fake.bookmark()
    fake.error(410)
    await until(lambda: len(follower.lists) == 2)
    assert len(follower.troubles) == 4


async def test_a_trouble_of_the_watch_is_over_when_it_brings_something(fake: FakeApiServer, watching: Follower) -> None:
    for times in (1, 2):
        fake.bookmark()
        fake.next("watch", refuse(500))
        fake.end()
        await until(lambda: len(fake.watching) == 1 and not fake.faults["watch"])
        contacts = watching.contacts
        fake.bookmark()
        await until(lambda: watching.contacts > contacts)  # noqa: B023  it is used up in this round
        assert watching.troubles == ["cannot watch namespaces: HTTP 500"] * times


async def test_a_redirect_is_not_followed(fake: FakeApiServer, follow: Callable[..., Follower]) -> None:
    """The token would go along, to wherever it says."""
    fake.next("list", refuse(302, Location=f"{fake.url}/elsewhere"))
    follower = follow()
    await until(lambda: "payments" in follower.names)
    assert follower.troubles == ["cannot list namespaces: HTTP 302"]
    assert {seen.path for seen in fake.seen} == {NAMESPACES}


async def test_a_list_without_an_end_is_given_up(
    fake: FakeApiServer, follow: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_BODY_BYTES_MAX", 1 << 20)
    fake.next("list", say(b" " * (2 << 20)))
    follower = follow()
    await until(lambda: "payments" in follower.names)
    assert follower.troubles == ["cannot list namespaces: a body of more than 1048576 bytes"]


@pytest.mark.usefixtures("fake")
async def test_a_defect_in_what_takes_the_changes_is_not_swallowed(tmp_path: Path) -> None:
    async def broken(_: ListSnapshot[Namespace]) -> None:
        raise LookupError("a defect of ours")

    async with await connect(tmp_path / "kubeconfig") as client:
        watch = Watch(
            client, COLLECTION, WatchHandler(broken, Follower().one), reports=WatchReports(list, str, str), timing=QUICK
        )
        with pytest.raises(LookupError):
            await watch.run()


async def test_cancelled_at_any_point_it_leaves_nothing_open(fake: FakeApiServer, tmp_path: Path) -> None:
    fake.next("list", hang)
    client = await connect(tmp_path / "kubeconfig")
    follower = Follower()
    stuck = asyncio.Event()

    async def for_ever() -> None:
        stuck.set()
        await asyncio.Event().wait()

    follower.taking = for_ever
    watch = Watch(
        client,
        COLLECTION,
        WatchHandler(follower.all, follower.one),
        reports=follower.reports,
        timing=QUICK,
    )

    async def run_until(condition: Callable[[], bool]) -> None:
        task = asyncio.create_task(watch.run())
        await until(condition)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    await run_until(lambda: fake.verbs() == ["list"])
    await run_until(lambda: len(fake.watching) == 1)
    await until(lambda: not fake.watching)
    fake.put(NAMESPACES, "orders")
    fake.next("list", say(b'{"metadata": {"resourceVersion": "100"}, "items": []}'))
    await run_until(stuck.is_set)
    await until(lambda: not fake.watching)
    follower.taking = None
    await run_until(lambda: follower.names.keys() == {"payments", "orders"})
    await client.close()


def test_the_pauses_have_their_bounds_from_the_timing() -> None:
    backoff = ApiTiming(first_pause_seconds=1, longest_pause_seconds=30, longest_retry_after_seconds=60).backoff()
    for bound in (1, 2, 4, 8, 16, 30, 30):
        assert bound / 2 <= backoff.next_seconds() <= bound
    assert 60 <= backoff.next_seconds(86_400) <= 75


async def test_retry_after_is_read_from_the_answer(
    fake: FakeApiServer, follow: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def paused(_: Backoff, asked_seconds: float = 0.0) -> float:
        asked.append(asked_seconds)
        return 0.0

    monkeypatch.setattr(Backoff, "next_seconds", paused)
    fake.next("list", refuse(429, Retry_After="7"), refuse(503, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT"))
    fake.next("watch", refuse(429, Retry_After="9"))
    follow()
    await until(lambda: len(fake.watching) == 1)
    assert asked == [7.0, 0.0, 9.0]


async def test_a_healthy_stretch_ends_the_series_of_failures(
    fake: FakeApiServer, follow: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    resets: list[None] = []
    monkeypatch.setattr(Backoff, "reset", lambda _: resets.append(None))
    fake.next("list", refuse(500), refuse(500))
    follow(replace(QUICK, healthy_seconds=0))
    await until(lambda: len(fake.watching) == 1)
    assert len(resets) == 2


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many failures in a row each pause has followed."""
    seen: list[int] = []
    next_seconds = Backoff.next_seconds

    def noted(backoff: Backoff, asked_seconds: float = 0.0) -> float:
        seen.append(backoff._failures)
        return next_seconds(backoff, asked_seconds)

    monkeypatch.setattr(Backoff, "next_seconds", noted)
    return seen


async def test_however_often_a_watch_that_brings_something_is_cut_its_pauses_stay_short(
    fake: FakeApiServer, failures: list[int], watching: Follower
) -> None:
    for times in range(1, 6):
        contacts = watching.contacts
        fake.bookmark()
        await until(lambda: watching.contacts > contacts)  # noqa: B023  it is used up in this round
        fake.cut()
        await until(lambda: len(failures) == times and len(fake.watching) == 1)  # noqa: B023  as above
    assert failures == [0] * 5


async def test_a_version_that_is_gone_when_the_api_server_is_back_costs_no_long_pause(
    fake: FakeApiServer, failures: list[int], watching: Follower
) -> None:
    fake.bookmark()
    fake.next("watch", *[refuse(429)] * 4, refuse(410, "too old resource version"))
    fake.cut()
    await until(lambda: len(watching.lists) > 1 and len(fake.watching) == 1)
    assert failures == [0, 1, 2, 3, 4, 0], "cut, refused four times, and then told that a list is due"
