"""Overrides in their ConfigMap: watched by a server, changed by commands with the caller's permissions."""

from typing import Any

import pytest

from tests.adapters.kubernetes.watching import Loops, Reported
from tests.harness.fake_apiserver import CONFIGMAPS, FakeApiServer, drop, refuse, wait_until
from tests.harness.overrides import FixedClock, OverridesRecorder, entry
from webhook.adapters.kubernetes import ApiTiming, ConfigMapOverrides, ConfigMapOverridesStore
from webhook.errors import UserError
from webhook.policy_in_force.active_overrides import ActiveOverrides
from webhook.ports import Observer, OverridesStore

NAME, KEY, THIS = "podgate-overrides", "overrides.yaml", "configmap podgate-system/podgate-overrides"
QUICK = ApiTiming(first_pause_seconds=0.001, pause_seconds_max=0.01, cool_down_seconds=0)


class Followed(Reported):
    """A source behind a fake API server, and its reports."""

    def __init__(self, fake: FakeApiServer, client: Any) -> None:
        super().__init__()
        self.fake = fake
        self.recorder = OverridesRecorder()
        observer: Observer = self.recorder
        self.keeper = ActiveOverrides(observer, FixedClock(), THIS)
        self.source = ConfigMapOverrides(client, self.keeper, reports=self.reports, timing=QUICK)

    def list_live(self) -> list[str]:
        return sorted(self.keeper.get_current().entries)

    def apply(self, text: str) -> None:
        self.fake.put(CONFIGMAPS, NAME, data={KEY: text})


@pytest.fixture
async def followed(fake: FakeApiServer, client: Any, loops: Loops) -> Followed:
    made = Followed(fake, client)
    loops.start(made.source.run())
    await wait_until(lambda: len(fake.watching) == 1)
    return made


async def test_missing_configmap_is_no_override_and_no_error(followed: Followed) -> None:
    assert followed.recorder.loaded == [[]]
    assert followed.keeper.list_errors() == ()
    assert followed.troubles == []
    assert followed.fake.find_last("watch").query["fieldSelector"] == f"metadata.name={NAME}"


async def test_overrides_apply_until_the_configmap_is_deleted(followed: Followed) -> None:
    followed.apply(entry())
    await wait_until(lambda: followed.list_live() == ["payment-api"])
    followed.apply(entry() + entry("web"))
    await wait_until(lambda: followed.list_live() == ["payment-api", "web"])
    followed.fake.remove(CONFIGMAPS, NAME)
    await wait_until(lambda: followed.list_live() == [])


async def test_bad_document_keeps_overrides_and_names_its_position(followed: Followed) -> None:
    followed.apply(entry())
    await wait_until(lambda: followed.list_live() == ["payment-api"])
    followed.apply("- {service: web}")
    await wait_until(lambda: len(followed.recorder.failed) == 1)
    assert followed.list_live() == ["payment-api"]
    assert followed.keeper.list_errors()[0].startswith(f"{THIS}: {KEY}:1:3: [0]")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"data": {"override.yaml": entry()}}, f"{THIS}: data['{KEY}'] is missing, there is override.yaml"),
        ({"binaryData": {KEY: "/w=="}}, f"{THIS}: binaryData['{KEY}']: it is UTF-8 text"),
    ],
)
async def test_document_under_a_wrong_key_is_reported(followed: Followed, fields: dict[str, Any], error: str) -> None:
    followed.fake.put(CONFIGMAPS, NAME, **fields)
    await wait_until(lambda: len(followed.recorder.failed) == 1)
    assert followed.keeper.list_errors()[0].startswith(error)


async def test_empty_configmap_ends_overrides(followed: Followed) -> None:
    followed.apply(entry())
    await wait_until(lambda: followed.list_live() == ["payment-api"])
    followed.fake.put(CONFIGMAPS, NAME, data=None)
    await wait_until(lambda: followed.list_live() == [])
    assert followed.keeper.list_errors() == ()


async def test_refresh_loads_overrides_and_keeps_them_after_a_failure(fake: FakeApiServer, client: Any) -> None:
    made = Followed(fake, client)
    made.apply(entry())
    await made.source.refresh()
    assert made.list_live() == ["payment-api"]
    fake.fail_next("list", drop)
    await made.source.refresh()
    assert made.list_live() == ["payment-api"]


async def test_missing_right_is_named(fake: FakeApiServer, client: Any, loops: Loops) -> None:
    fake.always["list"] = refuse(403, "forbidden")
    made = Followed(fake, client)
    loops.start(made.source.run())
    await wait_until(lambda: bool(made.troubles))
    right = f"list and watch configmaps named {NAME} in podgate-system"
    assert made.troubles[0].startswith(f"cannot list {THIS}: HTTP 403: forbidden: grant the right to {right}")


async def test_store_creates_the_configmap_and_keeps_other_content(fake: FakeApiServer, client: Any) -> None:
    store: OverridesStore = ConfigMapOverridesStore(client)
    assert await store.read() == b""
    assert await store.write(entry().encode())
    made = fake.find_stored(CONFIGMAPS, NAME)
    assert made is not None
    assert made["data"] == {KEY: entry()}
    assert made["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "podgate"
    fake.put(CONFIGMAPS, NAME, data={KEY: entry(), "note": "n"}, labels={"ours": "yes"})
    assert await store.read() == entry().encode()
    assert await store.write(b"[]\n")
    kept = fake.find_stored(CONFIGMAPS, NAME)
    assert kept is not None
    assert (kept["data"], kept["metadata"]["labels"]) == ({KEY: "[]\n", "note": "n"}, {"ours": "yes"})


async def test_store_writes_nothing_after_a_concurrent_change(fake: FakeApiServer, client: Any) -> None:
    one, other = ConfigMapOverridesStore(client), ConfigMapOverridesStore(client)
    await one.read()
    await other.read()
    assert await one.write(b"one")
    assert not await other.write(b"other"), "another client has created it"
    await other.read()
    await one.read()
    assert await one.write(b"two")
    assert not await other.write(b"other"), "another client has changed it"
    found = fake.find_stored(CONFIGMAPS, NAME)
    assert found is not None
    assert found["data"][KEY] == "two"


@pytest.mark.parametrize(("verb", "exists"), [("get", True), ("create", False), ("update", True)])
async def test_store_names_the_missing_right(fake: FakeApiServer, client: Any, verb: str, *, exists: bool) -> None:
    if exists:
        fake.put(CONFIGMAPS, NAME, data={KEY: entry()})
    fake.always[verb] = refuse(403, "forbidden")
    store = ConfigMapOverridesStore(client)

    async def change() -> None:
        await store.read()
        await store.write(b"[]")

    with pytest.raises(UserError, match=f"grant the right to {verb} configmaps"):
        await change()


async def test_store_reads_the_policy(fake: FakeApiServer, client: Any) -> None:
    store = ConfigMapOverridesStore(client)
    assert await store.read_policy() is None
    fake.put(CONFIGMAPS, "podgate-policy", data={"policy.yaml": "kind: Policy\n"})
    assert await store.read_policy() == b"kind: Policy\n"
