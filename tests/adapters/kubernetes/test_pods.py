"""Pods, listed in pages and watched without a gap, over a connection with every failure."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from tests.adapters.kubernetes.watching import Loops, Reported
from tests.harness.fake_apiserver import NAMESPACES, PODS, FakeApiServer, hang, refuse, say, wait_until
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.kubernetes import ApiTiming, WatchedPods
from webhook.adapters.kubernetes.pods import find_store, make_annotations, parse_continuity
from webhook.core.kubernetes.pod import Pod
from webhook.ports import Continuity, PodLookup

QUICK = ApiTiming(first_pause_seconds=0.001, pause_seconds_max=0.01, healthy_seconds=3600)


@dataclass
class Follower(Reported):
    """A `ports.PodEventHandler` that records its events."""

    clock: VirtualClock = field(kw_only=True)
    pods: WatchedPods | None = None
    there: dict[str, Pod] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    lists: int = 0
    on_page: Callable[[], None] = lambda: None

    async def on_list_begun(self) -> None:
        self.pages.clear()
        self.there.clear()

    async def on_listed(self, pods: Sequence[Pod]) -> None:
        self.pages.append(len(pods))
        self.there.update({pod.metadata.uid: pod for pod in pods})
        self.on_page()

    async def on_list_complete(self) -> None:
        self.lists += 1

    async def on_changed(self, pod: Pod, *, gone: bool) -> None:
        self.events.append(f"{'gone' if gone else 'there'} {pod.metadata.uid}")
        if gone:
            self.there.pop(pod.metadata.uid, None)
        else:
            self.there[pod.metadata.uid] = pod

    async def on_unread(self, uid: str, *, gone: bool) -> None:
        self.events.append(f"{'gone' if gone else 'kept'} {uid}")

    async def on_passed(self, pod: Pod) -> None:
        self.events.append(f"passed {pod.metadata.uid}")

    @property
    def continuity(self) -> Continuity | None:
        assert self.pods is not None
        return self.pods.continuity


Follow = Callable[..., Follower]


@pytest.fixture
def fake(fake: FakeApiServer) -> FakeApiServer:
    fake.put_pod("shop", "first", "u1")
    return fake


@pytest.fixture
def follow(client: Any, loops: Loops) -> Follow:
    """Return a function that starts a follower of Pods."""

    def start(resume: Continuity | None = None, *, run: bool = True, timing: ApiTiming = QUICK) -> Follower:
        follower = Follower(clock=VirtualClock(1_000_000))
        follower.pods = WatchedPods(client, follower.clock, reports=follower.reports, timing=timing, resume=resume)
        if run:
            loops.start(follower.pods.run(follower))
        return follower

    return start


async def wait_until_watching(fake: FakeApiServer, follower: Follower) -> None:
    await wait_until(lambda: len(fake.watching) == 1 and follower.lists > 0)


async def test_pod_fields_are_read_as_written(fake: FakeApiServer, follow: Follow) -> None:
    metadata = {
        "labels": {"app": "web"},
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "deletionTimestamp": "2026-01-02T03:05:05Z",
        "deletionGracePeriodSeconds": 30,
        "ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "o", "controller": True}],
    }
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}
    fake.put_pod("shop", "whole", "u2", metadata=metadata, spec=spec, status={"phase": "Running"})
    follower = follow()
    await wait_until_watching(fake, follower)
    pod = follower.there["u2"]
    assert (pod.metadata.namespace, pod.metadata.name, pod.labels) == ("shop", "whole", {"app": "web"})
    assert pod.metadata.creation_timestamp == "2026-01-02T03:04:05Z"
    assert (pod.metadata.deletion_timestamp, pod.metadata.deletion_grace_period_seconds) == ("2026-01-02T03:05:05Z", 30)
    assert (pod.metadata.owner_references or ())[0].kind == "DaemonSet"
    assert pod.status.phase == "Running"


async def test_built_in_exempt_namespaces_are_not_sent(fake: FakeApiServer, follow: Follow) -> None:
    fake.put_pod("kube-system", "dns", "u2")
    follower = follow()
    await wait_until_watching(fake, follower)
    fake.put_pod("podgate-system", "us", "u3")
    fake.put_pod("shop", "second", "u4")
    await wait_until(lambda: "u4" in follower.there)
    assert set(follower.there) == {"u1", "u4"}


async def test_long_list_is_paged_at_one_version(fake: FakeApiServer, follow: Follow) -> None:
    for number in range(1100):
        fake.put_pod("shop", f"more-{number}", f"m{number}")
    begun = fake.revision
    follower = follow(run=False)

    def put_pod_meanwhile() -> None:
        follower.clock.set(follower.clock.now_us() + 1)
        fake.put_pod("shop", f"new-{len(follower.pages)}", f"n{len(follower.pages)}")

    follower.on_page = put_pod_meanwhile
    assert follower.pods is not None
    running = asyncio.create_task(follower.pods.run(follower))
    await wait_until(lambda: "n3" in follower.there)
    running.cancel()
    await asyncio.wait([running])
    assert follower.pages == [500, 500, 101]
    assert follower.events == ["there n1", "there n2", "there n3"], "the watch begins at the version of the first page"
    assert follower.continuity == Continuity(begun + 3, 1_000_000), "and continuity at its arrival"


async def test_list_restarts_when_its_version_expires(fake: FakeApiServer, follow: Follow) -> None:
    for number in range(600):
        fake.put_pod("shop", f"more-{number}", f"m{number}")
    follower = follow(run=False)

    def compact_once() -> None:
        follower.on_page = lambda: None
        fake.put_pod("shop", "new", "new")
        fake.compact()

    follower.on_page = compact_once
    assert follower.pods is not None
    running = asyncio.create_task(follower.pods.run(follower))
    await wait_until_watching(fake, follower)
    running.cancel()
    await asyncio.wait([running])
    assert (len(follower.there), follower.pages, follower.troubles) == (602, [500, 102], [])


async def test_endlessly_expiring_list_is_reported(fake: FakeApiServer, follow: Follow) -> None:
    fake.always["list"] = refuse(410, "too old")
    follower = follow()
    await wait_until(lambda: bool(follower.troubles))
    assert follower.troubles == ["cannot list pods: HTTP 410: too old"]
    assert (follower.lists, follower.continuity) == (0, None)
    del fake.always["list"]
    await wait_until_watching(fake, follower)


async def test_failed_page_does_not_change_continuity(fake: FakeApiServer, follow: Follow) -> None:
    async def fail_halfway(_: web.Request) -> web.StreamResponse:
        metadata = {"resourceVersion": str(fake.revision), "continue": "1:1"}
        return web.json_response({"metadata": metadata, "items": []})

    fake.fail_next("list", fail_halfway, refuse(500, "oh"))
    follower = follow(Continuity(7, 77))
    await wait_until(lambda: bool(follower.troubles))
    assert follower.continuity == Continuity(7, 77)
    await wait_until_watching(fake, follower)
    assert follower.continuity == Continuity(7, 77) or follower.lists > 0


async def test_changes_and_bookmarks_advance_continuity(fake: FakeApiServer, follow: Follow) -> None:
    follower = follow()
    await wait_until_watching(fake, follower)
    assert follower.continuity == Continuity(fake.revision, 1_000_000)
    fake.put_pod("shop", "second", "u2")
    await wait_until(lambda: follower.continuity == Continuity(fake.revision, 1_000_000))
    fake.put(NAMESPACES, "other")
    fake.bookmark()
    await wait_until(lambda: follower.continuity == Continuity(fake.revision, 1_000_000))


async def test_watch_resumes_at_its_former_version_after_a_list(fake: FakeApiServer, follow: Follow) -> None:
    follower = follow()
    await wait_until_watching(fake, follower)
    before = follower.continuity
    fake.fail_next("list", refuse(500))
    fake.always["watch"] = refuse(500, "oh")
    fake.break_watches()
    await wait_until(lambda: len(follower.troubles) > 0)
    follower.clock.set(9_000_000)
    fake.put_pod("shop", "brief", "u2")
    fake.put_pod("shop", "stays", "u3")
    fake.remove(PODS, "shop/brief")
    follower.events.clear()
    lists = follower.lists
    await wait_until(lambda: follower.lists > lists)
    assert follower.continuity == before, "the changes since have not been watched yet"
    del fake.always["watch"]
    await wait_until(lambda: follower.continuity == Continuity(fake.revision, 1_000_000))
    assert follower.events == ["passed u2", "passed u3", "passed u2"], "the list is newer than these events"
    assert set(follower.there) == {"u1", "u3"}


async def test_new_watcher_resumes_at_the_recorded_version(fake: FakeApiServer, follow: Follow) -> None:
    before = Continuity(fake.revision, 555)
    fake.put_pod("shop", "brief", "u2")
    fake.remove(PODS, "shop/brief")
    follower = follow(before)
    await wait_until(lambda: follower.continuity == Continuity(fake.revision, 555))
    assert (follower.events, set(follower.there)) == (["passed u2", "passed u2"], {"u1"})
    fake.put_pod("shop", "second", "u3")
    await wait_until(lambda: "u3" in follower.there)
    assert follower.events[2:] == ["there u3"]


async def test_expired_version_restarts_continuity(fake: FakeApiServer, follow: Follow) -> None:
    before = Continuity(fake.revision - 1, 555)
    fake.compact()
    follower = follow(before)
    await wait_until(lambda: follower.continuity == Continuity(fake.revision, 1_000_000))
    assert follower.troubles == [], "an expired version is usual"


async def test_future_version_restarts_continuity(fake: FakeApiServer, follow: Follow) -> None:
    follower = follow(Continuity(fake.revision + 1000, 555))
    await wait_until_watching(fake, follower)
    assert follower.continuity == Continuity(fake.revision, 1_000_000)


async def test_undecodable_event_restarts_continuity(fake: FakeApiServer, follow: Follow) -> None:
    follower = follow()
    await wait_until_watching(fake, follower)
    follower.clock.set(2_000_000)
    fake.send(b'{"type": "ADDED", "object": {"metadata": 1}}\n')
    await wait_until(lambda: follower.continuity == Continuity(fake.revision, 2_000_000))


async def test_list_again_keeps_continuity(fake: FakeApiServer, follow: Follow) -> None:
    follower = follow()
    await wait_until_watching(fake, follower)
    assert follower.pods is not None
    fake.put_pod("shop", "second", "u2")
    await wait_until(lambda: "u2" in follower.there)
    follower.clock.set(2_000_000)
    follower.pods.list_again()
    await wait_until(lambda: follower.lists == 2 and len(fake.watching) == 1)
    assert follower.continuity == Continuity(fake.revision, 1_000_000), "the list missed nothing"


async def test_a_list_ends_before_it_is_listed_again_once(fake: FakeApiServer, follow: Follow) -> None:
    for number in range(1000):
        fake.put_pod("shop", f"pod-{number}", f"more-{number}")
    follower = follow()
    pages: list[int] = []

    def ask() -> None:
        assert follower.pods is not None
        pages.append(len(follower.pages))
        if follower.lists == 0:
            follower.pods.list_again()

    follower.on_page = ask
    await wait_until(lambda: follower.lists == 2 and len(fake.watching) == 1)
    assert pages == [1, 2, 3, 1, 2, 3]


async def test_find_looks_in_the_given_namespace(fake: FakeApiServer, follow: Follow) -> None:
    pods = follow(run=False).pods
    assert pods is not None
    fake.put_pod("elsewhere", "second", "u2")
    found = await pods.find("shop", "first")
    assert found is not None
    assert found.pod is not None
    assert (found.pod.metadata.uid, found.version) == ("u1", fake.revision)
    assert await pods.find("shop", "second") == PodLookup(None, fake.revision)
    asked = fake.find_last("list")
    assert (asked.path, asked.query) == (f"{NAMESPACES}/shop/pods", {"fieldSelector": "metadata.name=second"})


@pytest.mark.parametrize("fault", [refuse(500), refuse(403), hang, say(b"{}"), say(b"[", cut=True)])
async def test_failed_find_returns_none_and_is_reported(fake: FakeApiServer, follow: Follow, fault: Any) -> None:
    follower = follow(run=False, timing=ApiTiming(look_seconds=0.1))
    fake.always["list"] = fault
    assert follower.pods is not None
    assert await follower.pods.find("shop", "first") is None
    assert follower.troubles[0].startswith("cannot look up a pod: ")


@pytest.mark.parametrize(("namespace", "name"), [("..", "x"), ("a/b", "x"), ("shop", "x,y=z"), ("", "x"), ("shop", "")])
async def test_invalid_namespace_or_name_is_not_requested(
    fake: FakeApiServer, follow: Follow, namespace: str, name: str
) -> None:
    pods = follow(run=False).pods
    assert pods is not None
    assert await pods.find(namespace, name) is None
    assert fake.seen == []


def test_continuity_round_trips_through_annotations() -> None:
    reached = Continuity(123, 456)
    written = make_annotations(reached, "as it is")
    assert (parse_continuity(written), find_store(written)) == (reached, "as it is")
    assert make_annotations(None, "as it is") == {}, "the store of another moment would hide a loss"
    assert find_store({}) == ""
    for broken in ({}, {"podgate.io/watched-version": "x", "podgate.io/watched-since": "1"}):
        assert parse_continuity(broken) is None
