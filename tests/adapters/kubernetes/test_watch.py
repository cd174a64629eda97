"""A watch continues through every behaviour of an API server or a proxy."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.adapters.kubernetes.watching import Loops, Reported
from tests.harness.fake_apiserver import NAMESPACES, FakeApiServer, drop, hang, refuse, say, wait_until
from tests.harness.nesting import nest
from webhook.adapters.kubernetes.api import pages
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
# Never healthy: no result depends on the duration of a test.
QUICK = ApiTiming(first_pause_seconds=0.001, pause_seconds_max=0.01, healthy_seconds=3600)


class Follower(Reported):
    """A running watch, and what it delivered."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, dict[str, str]] = {}
        self.lists: list[str] = []
        self.changes: list[tuple[str, str]] = []
        self.on_change: Callable[[], Awaitable[None]] | None = None

    async def all(self, snapshot: ListSnapshot[Namespace]) -> None:
        self.lists.append(snapshot.version)
        self.names = {item.metadata.name: item.metadata.labels or {} for item in snapshot.items}

    async def one(self, changed: Namespace, deleted: bool) -> None:  # noqa: FBT001  the watch's word
        if self.on_change is not None:
            await self.on_change()
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
    """Return a function that starts a watch."""

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
    await wait_until(lambda: len(fake.watching) == 1)
    return follower


async def test_list_is_followed_by_every_change(fake: FakeApiServer, watching: Follower) -> None:
    assert watching.names == {"payments": {"tier": "prod"}}
    fake.put(NAMESPACES, "payments", labels={"tier": "test"})
    fake.put(NAMESPACES, "orders")
    await wait_until(lambda: watching.names == {"payments": {"tier": "test"}, "orders": {}})
    fake.remove(NAMESPACES, "payments")
    await wait_until(lambda: watching.names == {"orders": {}})
    assert fake.verbs() == ["list", "watch"]
    assert watching.troubles == []


def nest_fields(name: str, version: int) -> str:
    """Return an object whose managedFields, which nobody reads, are nested as deeply as an API server takes them."""
    fields = nest(9_000, '{"f:a":', "}")
    metadata = f'{{"name": "{name}", "resourceVersion": "{version}", "managedFields": [{{"fieldsV1": {fields}}}]}}'
    return f'{{"kind": "Namespace", "metadata": {metadata}}}'


async def test_an_object_that_is_nested_deeply_hides_no_other_one(
    fake: FakeApiServer, follow: Callable[..., Follower]
) -> None:
    items = f'[{nest_fields("deep", 90)}, {{"metadata": {{"name": "other"}}}}]'
    listed = f'{{"metadata": {{"resourceVersion": "{fake.revision}"}}, "items": {items}}}'
    fake.fail_next("list", say(listed.encode()))
    watching = follow()
    await wait_until(lambda: len(fake.watching) == 1)
    assert watching.names == {"deep": {}, "other": {}}
    fake.send(f'{{"type": "ADDED", "object": {nest_fields("deeper", fake.revision + 1)}}}\n'.encode())
    fake.put(NAMESPACES, "orders")
    await wait_until(lambda: "orders" in watching.names)
    assert watching.names == {"deep": {}, "other": {}, "deeper": {}, "orders": {}}
    assert fake.verbs() == ["list", "watch"]
    assert (watching.troubles, watching.unread) == ([], {})


async def test_watch_begins_at_the_version_of_a_consistent_list(fake: FakeApiServer, watching: Follower) -> None:
    assert fake.find_last("list").query == {}
    query = fake.find_last("watch").query
    assert query["resourceVersion"] == watching.lists[0] == str(fake.revision)
    assert query["allowWatchBookmarks"] == "true"
    assert 300 <= int(query["timeoutSeconds"]) <= 600
    assert fake.find_last("watch").headers["User-Agent"].startswith("podgate/")


@pytest.mark.parametrize("ending", ["break_watches", "end"])
async def test_ended_watch_resumes_at_its_last_version(fake: FakeApiServer, watching: Follower, ending: str) -> None:
    fake.put(NAMESPACES, "orders")
    await wait_until(lambda: "orders" in watching.names)
    last = fake.revision
    getattr(fake, ending)()
    fake.put(NAMESPACES, "stock")  # without an open watch
    await wait_until(lambda: "stock" in watching.names)
    assert fake.find_last("watch").query["resourceVersion"] == str(last)
    assert fake.verbs() == ["list", "watch", "watch"]
    assert watching.troubles == []


async def test_bookmark_advances_the_version(fake: FakeApiServer, watching: Follower) -> None:
    fake.revision += 1000  # writes of other kinds of objects
    contacts = watching.contacts
    fake.bookmark()
    await wait_until(lambda: watching.contacts > contacts)
    fake.compact()
    fake.break_watches()
    await wait_until(lambda: fake.verbs().count("watch") == 2)
    assert fake.find_last("watch").query["resourceVersion"] == str(fake.revision)
    assert watching.changes == []


async def test_expired_version_in_an_event_causes_a_list(fake: FakeApiServer, watching: Follower) -> None:
    fake.bookmark()
    fake.break_watches()
    fake.remove(NAMESPACES, "payments")
    fake.put(NAMESPACES, "orders")
    fake.compact()
    await wait_until(lambda: watching.names == {"orders": {}})
    assert watching.lists[-1] == str(fake.revision)
    assert watching.changes == [], "the list shows what is gone"
    assert watching.troubles == [], "an expired version is usual"


async def test_expired_version_in_the_status_causes_a_list(fake: FakeApiServer, watching: Follower) -> None:
    fake.bookmark()
    fake.fail_next("watch", refuse(410, "too old resource version"))
    fake.end()
    await wait_until(lambda: fake.verbs() == ["list", "watch", "watch", "list", "watch"])
    assert watching.troubles == []


async def test_expired_version_in_an_open_watch_causes_a_list(fake: FakeApiServer, watching: Follower) -> None:
    fake.bookmark()
    fake.error(410, "etcd event received with PrevKv=nil")
    await wait_until(lambda: fake.verbs() == ["list", "watch", "list", "watch"])
    assert watching.troubles == []


async def test_version_expired_right_after_its_list_is_reported(
    fake: FakeApiServer, follow: Callable[..., Follower]
) -> None:
    fake.always["watch"] = refuse(410, "too old resource version")
    follower = follow()
    await wait_until(lambda: len(follower.lists) > 2)
    assert follower.troubles == ["cannot watch namespaces: HTTP 410: too old resource version"]


async def test_other_stream_error_is_reported_and_causes_a_list(fake: FakeApiServer, watching: Follower) -> None:
    fake.error(500, "storage is unwell")
    await wait_until(lambda: len(watching.lists) == 2)
    assert watching.troubles == ["cannot watch namespaces: HTTP 500: storage is unwell"]


@pytest.mark.parametrize(
    "line",
    [
        b"<html>\n",
        b'{"type": "ADDED"}\n',
        b'{"type": "ADDED", "object": {"metadata": {"name": 5}}}\n',
        b'{"type": "RENAMED", "object": {}}\n',
    ],
)
async def test_undecodable_line_is_reported_and_causes_a_list(
    fake: FakeApiServer, watching: Follower, line: bytes
) -> None:
    fake.bookmark()
    fake.send(line)
    fake.put(NAMESPACES, "orders")
    await wait_until(lambda: "orders" in watching.names)
    assert len(watching.lists) == 2
    assert len(watching.troubles) == 1
    assert watching.troubles[0].startswith("cannot watch namespaces: ")


async def test_incomplete_last_line_is_ignored(fake: FakeApiServer, watching: Follower) -> None:
    fake.bookmark()
    fake.send(b'{"type": "ADDED", "object": {"metadata": {"name": "half", "resourceVersion": "9')
    fake.end()
    fake.put(NAMESPACES, "orders")
    await wait_until(lambda: "orders" in watching.names)
    assert "half" not in watching.names
    assert len(watching.lists) == 1


async def test_event_of_several_megabytes_is_reassembled(fake: FakeApiServer, watching: Follower) -> None:
    huge = b'{"type":"ADDED","object":{"metadata":{"name":"huge","resourceVersion":"900"},"spec":"' + b"x" * (5 << 20)
    for begin in range(0, len(huge), 100_000):
        fake.send(huge[begin : begin + 100_000])
    fake.send(b'"}}\n')
    await wait_until(lambda: "huge" in watching.names)


def test_overlong_line_is_refused() -> None:
    lines = Lines()
    for _ in range(20):
        assert list(lines.split(b"x" * (1 << 20))) == []
    with pytest.raises(GarbledError, match="a line of more than"):
        list(lines.split(b"x"))


def test_lines_are_split_at_any_chunk_boundary() -> None:
    text = b"one\n\ntwo\r\nthree\n"
    for size in range(1, len(text) + 1):
        lines = Lines()
        pieces = [text[begin : begin + size] for begin in range(0, len(text), size)]
        assert [line for piece in pieces for line in lines.split(piece)] == [b"one", b"two", b"three"]


async def test_silent_watch_without_events_causes_a_list(fake: FakeApiServer, follow: Callable[..., Follower]) -> None:
    follower = follow(replace(QUICK, inactivity_seconds=0.05, healthy_seconds=0.01))
    await wait_until(lambda: fake.verbs().count("watch") == 3)
    assert fake.verbs()[:5] == ["list", "watch", "list", "watch", "list"], (
        "a watch without events is followed by a list"
    )
    assert follower.troubles == [], "without changes there are no events"


async def test_silent_watch_with_events_resumes_at_their_version(
    fake: FakeApiServer, follow: Callable[..., Follower]
) -> None:
    async def send_and_hang(request: web.Request) -> web.StreamResponse:
        await say(b'{"type": "ADDED", "object": {"metadata": {"name": "orders", "resourceVersion": "150"}}}\n')(request)
        return await hang(request)

    fake.fail_next("watch", send_and_hang)
    follower = follow(replace(QUICK, inactivity_seconds=1))
    await wait_until(lambda: fake.verbs().count("watch") == 2)
    assert fake.verbs() == ["list", "watch", "watch"]
    assert fake.find_last("watch").query["resourceVersion"] == "150"
    assert follower.names.keys() == {"payments", "orders"}


async def test_overdue_watch_is_reopened_but_its_handler_is_not_interrupted(
    fake: FakeApiServer, follow: Callable[..., Follower]
) -> None:
    """An API server that does not end a watch after its `timeoutSeconds`."""
    follower = follow(replace(QUICK, watch_seconds_min=0, watch_seconds_max=0, request_seconds=1))
    await wait_until(lambda: len(fake.watching) == 1)
    follower.on_change = lambda: asyncio.sleep(1.5)
    fake.put(NAMESPACES, "orders")
    await wait_until(lambda: bool(follower.changes))
    await wait_until(lambda: fake.verbs().count("watch") == 2)
    assert fake.find_last("watch").query["resourceVersion"] == str(fake.revision)
    assert follower.changes == [("orders", "there")]


async def test_future_version_is_replaced_after_silence(fake: FakeApiServer, follow: Callable[..., Follower]) -> None:
    """A watch from a future version delivers nothing, not even bookmarks."""
    fake.fail_next("watch", say(b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "5000"}}}\n'))
    follower = follow(replace(QUICK, inactivity_seconds=0.05))
    await wait_until(lambda: len(fake.watching) == 1)
    assert fake.find_last("watch").query["resourceVersion"] == "5000"
    fake.put(NAMESPACES, "orders")
    await wait_until(lambda: "orders" in follower.names)


@pytest.mark.parametrize("ending", [say(b""), say(b"", cut=True), say(b"\n", cut=True)])
async def test_watch_without_events_is_reported_and_lists_continue(
    fake: FakeApiServer, follow: Callable[..., Follower], ending: Callable[..., Awaitable[object]]
) -> None:
    fake.always["watch"] = ending
    follower = follow()
    await wait_until(lambda: len(follower.lists) > 1)
    fake.put(NAMESPACES, "orders")
    await wait_until(lambda: "orders" in follower.names)
    assert len(follower.troubles) == 1
    assert follower.troubles[0].startswith("cannot watch namespaces: it ended before its first event: ")


async def test_forbidden_list_is_reported_once_and_retried(
    fake: FakeApiServer, follow: Callable[..., Follower]
) -> None:
    fake.always["list"] = refuse(403, 'User "u" cannot list resource "namespaces"')
    follower = follow()
    await wait_until(lambda: len(fake.seen) > 3)
    [trouble] = follower.troubles
    assert trouble == (
        'cannot list namespaces: HTTP 403: User "u" cannot list resource "namespaces":'
        " grant the right to list and watch namespaces, unless the API server has only just started"
    )
    assert follower.contacts == 0
    del fake.always["list"]
    await wait_until(lambda: "payments" in follower.names)


async def test_forbidden_watch_is_reported_and_lists_deliver_changes(
    fake: FakeApiServer, follow: Callable[..., Follower]
) -> None:
    fake.always["watch"] = refuse(403, "cannot watch")
    follower = follow()
    await wait_until(lambda: "payments" in follower.names)
    fake.put(NAMESPACES, "orders")
    await wait_until(lambda: "orders" in follower.names)
    [trouble] = follower.troubles
    assert trouble.startswith("cannot watch namespaces: HTTP 403: cannot watch: grant the right to list and watch ")


async def test_refused_credentials_are_reported(fake: FakeApiServer, follow: Callable[..., Follower]) -> None:
    fake.always["list"] = refuse(401, "Unauthorized")
    follower = follow()
    await wait_until(lambda: len(fake.seen) > 2)
    [trouble] = follower.troubles
    assert trouble.startswith("cannot list namespaces: HTTP 401: Unauthorized: the credentials are not accepted")


async def test_throttled_watch_is_retried_at_the_same_version(fake: FakeApiServer, watching: Follower) -> None:
    fake.bookmark()
    fake.fail_next("watch", refuse(429, "too many requests"), refuse(429, "too many requests"))
    fake.end()
    await wait_until(lambda: fake.verbs() == ["list", "watch", "watch", "watch", "watch"])
    assert watching.troubles == ["cannot watch namespaces: HTTP 429: too many requests"]


async def test_dropped_watch_is_retried_at_the_same_version(fake: FakeApiServer, watching: Follower) -> None:
    fake.bookmark()
    fake.fail_next("watch", drop, drop, drop)
    fake.end()
    await wait_until(lambda: len(fake.watching) == 1 and len(fake.seen) > 4)
    assert set(fake.verbs()[1:]) == {"watch"}
    assert len(watching.troubles) == 1


async def test_proxy_error_page_is_reported_by_its_status(fake: FakeApiServer, follow: Callable[..., Follower]) -> None:
    async def bad_gateway(_: web.Request) -> web.StreamResponse:
        return web.Response(status=502, text="<html>" + "x" * 1000, content_type="text/html")

    fake.fail_next("list", bad_gateway)
    follower = follow()
    await wait_until(lambda: "payments" in follower.names)
    assert follower.troubles == ["cannot list namespaces: HTTP 502: Bad Gateway"]


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"metadata": {}, "items": []}'])
async def test_invalid_list_is_reported_and_retried(
    fake: FakeApiServer, follow: Callable[..., Follower], body: bytes
) -> None:
    fake.fail_next("list", say(body))
    follower = follow()
    await wait_until(lambda: "payments" in follower.names)
    assert len(follower.troubles) == 1
    assert len(follower.lists) == 1


async def test_null_items_are_an_empty_list(fake: FakeApiServer, follow: Callable[..., Follower]) -> None:
    fake.fail_next("list", say(b'{"metadata": {"resourceVersion": "101"}, "items": null}'))
    follower = follow()
    await wait_until(lambda: len(fake.watching) == 1)
    assert follower.names == {}


async def test_hanging_or_broken_list_is_reported_and_retried(
    fake: FakeApiServer, follow: Callable[..., Follower]
) -> None:
    fake.fail_next("list", hang, drop, drop, say(b'{"metadata": {"resourceVersion": "1"}, "items": [', cut=True))
    follower = follow(replace(QUICK, request_seconds=1))
    await wait_until(lambda: "payments" in follower.names)
    assert follower.troubles[0] == "cannot list namespaces: no answer in time"
    assert "disconnected" in follower.troubles[1], "aiohttp itself retries once"
    assert "not completed" in follower.troubles[2]


async def test_recurring_trouble_is_reported_again(fake: FakeApiServer, follow: Callable[..., Follower]) -> None:
    fake.fail_next("list", refuse(500), refuse(500), refuse(501), refuse(500))
    follower = follow()
    await wait_until(lambda: "payments" in follower.names)
    assert follower.troubles == [f"cannot list namespaces: HTTP {code}" for code in (500, 501, 500)]
    fake.fail_next("list", refuse(500))
    await wait_until(lambda: len(fake.watching) == 1)
    fake.bookmark()
    fake.error(410)
    await wait_until(lambda: len(follower.lists) == 2)
    assert len(follower.troubles) == 4


async def test_watch_trouble_ends_with_the_next_event(fake: FakeApiServer, watching: Follower) -> None:
    for times in (1, 2):
        fake.bookmark()
        fake.fail_next("watch", refuse(500))
        fake.end()
        await wait_until(lambda: len(fake.watching) == 1 and not fake.faults["watch"])
        contacts = watching.contacts
        fake.bookmark()
        await wait_until(lambda: watching.contacts > contacts)  # noqa: B023  it is used up in this round
        assert watching.troubles == ["cannot watch namespaces: HTTP 500"] * times


async def test_redirect_is_not_followed(fake: FakeApiServer, follow: Callable[..., Follower]) -> None:
    """The token would go to its target."""
    fake.fail_next("list", refuse(302, Location=f"{fake.url}/elsewhere"))
    follower = follow()
    await wait_until(lambda: "payments" in follower.names)
    assert follower.troubles == ["cannot list namespaces: HTTP 302"]
    assert {seen.path for seen in fake.seen} == {NAMESPACES}


async def test_overlong_list_is_refused(
    fake: FakeApiServer, follow: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_PAGE_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(pages, "_OBJECT_BYTES_MAX", 1 << 20)
    fake.fail_next("list", *[say(b" " * (2 << 20))] * 10)  # at once, and in pages of 500, 250, ... 1
    follower = follow()
    await wait_until(lambda: "payments" in follower.names)
    assert follower.troubles == ["cannot list namespaces: a body of more than 1048576 bytes"]


@pytest.mark.usefixtures("fake")
async def test_defect_in_a_handler_is_raised(tmp_path: Path) -> None:
    async def fail(_: ListSnapshot[Namespace]) -> None:
        raise LookupError("a defect of ours")

    async with await connect(tmp_path / "kubeconfig") as client:
        watch = Watch(
            client, COLLECTION, WatchHandler(fail, Follower().one), reports=WatchReports(list, str, str), timing=QUICK
        )
        with pytest.raises(LookupError):
            await watch.run()


async def test_cancelled_watch_leaves_nothing_open(fake: FakeApiServer, tmp_path: Path) -> None:
    fake.fail_next("list", hang)
    client = await connect(tmp_path / "kubeconfig")
    follower = Follower()
    blocked = asyncio.Event()

    async def block() -> None:
        blocked.set()
        await asyncio.Event().wait()

    follower.on_change = block
    watch = Watch(
        client,
        COLLECTION,
        WatchHandler(follower.all, follower.one),
        reports=follower.reports,
        timing=QUICK,
    )

    async def run_until(condition: Callable[[], bool]) -> None:
        task = asyncio.create_task(watch.run())
        await wait_until(condition)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    await run_until(lambda: fake.verbs() == ["list"])
    await run_until(lambda: len(fake.watching) == 1)
    await wait_until(lambda: not fake.watching)
    fake.put(NAMESPACES, "orders")
    fake.fail_next("list", say(b'{"metadata": {"resourceVersion": "100"}, "items": []}'))
    await run_until(blocked.is_set)
    await wait_until(lambda: not fake.watching)
    follower.on_change = None
    await run_until(lambda: follower.names.keys() == {"payments", "orders"})
    await client.close()


def test_pauses_follow_the_timing() -> None:
    backoff = ApiTiming(first_pause_seconds=1, pause_seconds_max=30, retry_after_seconds_max=60).make_backoff()
    for bound in (1, 2, 4, 8, 16, 30, 30):
        assert bound / 2 <= backoff.next_seconds() <= bound
    assert 60 <= backoff.next_seconds(86_400) <= 75


async def test_retry_after_sets_the_pause(
    fake: FakeApiServer, follow: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def record_pause(_: Backoff, asked_seconds: float = 0.0) -> float:
        asked.append(asked_seconds)
        return 0.0

    monkeypatch.setattr(Backoff, "next_seconds", record_pause)
    fake.fail_next("list", refuse(429, Retry_After="7"), refuse(503, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT"))
    fake.fail_next("watch", refuse(429, Retry_After="9"))
    follow()
    await wait_until(lambda: len(fake.watching) == 1)
    assert asked == [7.0, 0.0, 9.0]


async def test_healthy_watch_resets_the_backoff(
    fake: FakeApiServer, follow: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    resets: list[None] = []
    monkeypatch.setattr(Backoff, "reset", lambda _: resets.append(None))
    fake.fail_next("list", refuse(500), refuse(500))
    follow(replace(QUICK, healthy_seconds=0))
    await wait_until(lambda: len(fake.watching) == 1)
    assert len(resets) == 2


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many failures in a row each pause has followed."""
    seen: list[int] = []
    next_seconds = Backoff.next_seconds

    def record_failures(backoff: Backoff, asked_seconds: float = 0.0) -> float:
        seen.append(backoff._failures)
        return next_seconds(backoff, asked_seconds)

    monkeypatch.setattr(Backoff, "next_seconds", record_failures)
    return seen


async def test_cut_watch_that_delivered_events_retries_without_backoff(
    fake: FakeApiServer, failures: list[int], watching: Follower
) -> None:
    for times in range(1, 6):
        contacts = watching.contacts
        fake.bookmark()
        await wait_until(lambda: watching.contacts > contacts)  # noqa: B023  it is used up in this round
        fake.break_watches()
        await wait_until(lambda: len(failures) == times and len(fake.watching) == 1)  # noqa: B023  as above
    assert failures == [0] * 5


async def test_expired_version_after_an_outage_resets_the_backoff(
    fake: FakeApiServer, failures: list[int], watching: Follower
) -> None:
    fake.bookmark()
    fake.fail_next("watch", *[refuse(429)] * 4, refuse(410, "too old resource version"))
    fake.break_watches()
    await wait_until(lambda: len(watching.lists) > 1 and len(fake.watching) == 1)
    assert failures == [0, 1, 2, 3, 4, 0], "cut, refused four times, and then expired"
