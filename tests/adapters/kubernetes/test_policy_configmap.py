"""The policy in its ConfigMap: valid ones take effect, invalid ones change nothing, the last good one is kept."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from tests.adapters.kubernetes.watching import Loops, Reported
from tests.adapters.policy_file import FakeClock, Recorder, document
from tests.harness.fake_apiserver import CONFIGMAPS, FakeApiServer, hang, refuse, say, wait_until
from tests.harness.policy_checks import ImmediateCheck
from webhook.adapters.kubernetes import ApiTiming, ConfigMapPolicy
from webhook.core.document.yaml.text import DOCUMENT_BYTES_MAX
from webhook.policy_in_force.policy_receiver import PolicyReceiver
from webhook.ports import Observer, PolicySource

POLICY, LAST_GOOD = "podgate-policy", "podgate-policy-last-good"
QUICK = ApiTiming(first_pause_seconds=0.001, pause_seconds_max=0.01, cool_down_seconds=0)
THIS = "configmap podgate-system/podgate-policy"
BAD = document(5).replace("pods", "pod")


class Followed(Reported):
    """A policy source behind a fake API server, and its reports."""

    def __init__(
        self,
        fake: FakeApiServer,
        client: Any,
        loops: Loops,
        timing: ApiTiming = QUICK,
        *,
        keeps_last_good: bool = True,
    ) -> None:
        super().__init__()
        self.fake = fake
        self.recorder = Recorder()
        observer: Observer = self.recorder
        self.keeper = PolicyReceiver(observer, FakeClock(), ImmediateCheck())
        self.source = ConfigMapPolicy(
            client,
            self.keeper,
            reports=self.reports,
            timing=timing,
            keeps_last_good=keeps_last_good,
        )
        self.keeper.rollout.keep_last_good = self.source.keep_last_good
        self._loops = loops

    def find_pods_limit(self) -> str | None:
        loaded = self.keeper.get_current()
        if loaded is None:
            return None
        quota = loaded.policy.services[0].quota
        assert quota is not None
        return quota.windows[0].hard["pods"].text

    def apply(self, text: str) -> None:
        self.fake.put(CONFIGMAPS, POLICY, data={"policy.yaml": text})

    def read_kept(self) -> str | None:
        found = self.fake.find_stored(CONFIGMAPS, LAST_GOOD)
        return found["data"]["policy.yaml"] if found else None

    def run(self) -> None:
        self._loops.start(self.source.run())

    async def start_watching(self) -> None:
        self.run()
        await wait_until(lambda: len(self.fake.watching) == 1)


@pytest.fixture
def followed(fake: FakeApiServer, client: Any, loops: Loops) -> Followed:
    return Followed(fake, client, loops)


def test_new_source_has_no_policy(followed: Followed) -> None:
    source: PolicySource = followed.keeper
    assert source.get_current() is None
    assert source.find_by_hash("0" * 16) is None


async def test_refresh_loads_the_exact_document(followed: Followed) -> None:
    text = document(5) + "# \u00fcber \U0001f680\n"
    followed.apply(text)
    await followed.source.refresh()
    file = PolicyReceiver(followed.recorder, FakeClock(), ImmediateCheck())
    assert await file.on_document(text.encode(), "a file")
    assert followed.keeper.get_loaded() == file.get_loaded()
    assert followed.contacts == 1


async def test_only_the_policy_configmap_is_requested(followed: Followed) -> None:
    await followed.start_watching()
    for verb in ("list", "watch"):
        seen = followed.fake.find_last(verb)
        assert seen.path == CONFIGMAPS
        assert seen.query["fieldSelector"] == "metadata.name=podgate-policy"


async def test_watch_delivers_changes(followed: Followed) -> None:
    followed.apply(document(5))
    await followed.start_watching()
    assert followed.find_pods_limit() == "5"
    followed.apply(document(6))
    await wait_until(lambda: followed.find_pods_limit() == "6")
    assert followed.fake.verbs().count("list") == 1


async def test_bad_document_keeps_the_policy_and_names_its_position(followed: Followed) -> None:
    followed.apply(document(5))
    await followed.start_watching()
    followed.apply(BAD)
    await wait_until(lambda: bool(followed.keeper.list_errors()))
    [error] = followed.keeper.list_errors()
    assert error.startswith(f"{THIS}: policy.yaml:6:")
    assert "services[0].quota" in error
    assert followed.find_pods_limit() == "5"


async def test_deleted_configmap_keeps_the_policy(followed: Followed) -> None:
    followed.apply(document(5))
    await followed.start_watching()
    followed.fake.remove(CONFIGMAPS, POLICY)
    await wait_until(lambda: bool(followed.keeper.list_errors()))
    [error] = followed.keeper.list_errors()
    assert error.startswith(f"{THIS}: there is none: create it, such as with `kubectl -n podgate-system create ")
    assert followed.find_pods_limit() == "5"
    followed.apply(document(5))
    await wait_until(lambda: not followed.keeper.list_errors())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "data['policy.yaml'] is missing, there is nothing: put the document there"),
        ({"data": {"policy.yml": "", "b": ""}}, "data['policy.yaml'] is missing, there is b, policy.yml: put"),
        ({"binaryData": {"policy.json": "AA=="}}, "data['policy.yaml'] is missing, there is policy.json: put"),
        ({"binaryData": {"policy.yaml": "/w=="}}, "binaryData['policy.yaml']: it is UTF-8 text, under data: put"),
    ],
)
async def test_configmap_without_the_document_is_refused(
    followed: Followed, fields: dict[str, Any], words: str
) -> None:
    followed.fake.put(CONFIGMAPS, POLICY, **fields)
    await followed.source.refresh()
    [error] = followed.keeper.list_errors()
    assert error.startswith(f"{THIS}: ")
    assert words in error


async def test_largest_document_is_loaded_and_copied(followed: Followed) -> None:
    text = document(5) + "# \u20ac\n"
    text += "#" * (DOCUMENT_BYTES_MAX - len(text.encode()) - 1) + "\n"
    await followed.start_watching()
    followed.apply(text)
    await wait_until(lambda: followed.read_kept() == text)
    assert followed.find_pods_limit() == "5"


# The copy


async def test_last_good_copy_follows_accepted_policies(followed: Followed) -> None:
    followed.apply(document(5))
    await followed.start_watching()
    await wait_until(lambda: followed.read_kept() == document(5))
    followed.apply(document(6))
    await wait_until(lambda: followed.read_kept() == document(6))
    followed.apply(BAD)
    await wait_until(lambda: bool(followed.keeper.list_errors()))
    assert followed.read_kept() == document(6)
    assert followed.troubles == []


async def test_equal_copy_is_not_rewritten(followed: Followed) -> None:
    followed.fake.put(CONFIGMAPS, LAST_GOOD, data={"policy.yaml": document(5)})
    followed.apply(document(5))
    await followed.start_watching()
    followed.apply(BAD)
    followed.apply(document(6))
    await wait_until(lambda: followed.read_kept() == document(6))
    assert followed.fake.verbs().count("update") == 1


async def test_labels_of_the_copy_are_kept(followed: Followed) -> None:
    followed.fake.put(CONFIGMAPS, LAST_GOOD, data={"policy.yaml": "old", "more": "x"}, labels={"team": "a"})
    followed.apply(document(5))
    await followed.start_watching()
    await wait_until(lambda: followed.read_kept() == document(5))
    stored = followed.fake.find_stored(CONFIGMAPS, LAST_GOOD)
    assert stored is not None
    assert stored["metadata"]["labels"] == {"team": "a"}


async def test_start_with_bad_policy_loads_last_good_and_shows_errors(
    followed: Followed,
) -> None:
    followed.fake.put(CONFIGMAPS, LAST_GOOD, data={"policy.yaml": document(4)})
    followed.apply(BAD)
    await followed.source.refresh()
    assert followed.find_pods_limit() == "4"
    assert followed.keeper.list_errors()[0].startswith(f"{THIS}: policy.yaml:6:")


async def test_start_without_policy_loads_last_good(followed: Followed) -> None:
    followed.fake.put(CONFIGMAPS, LAST_GOOD, data={"policy.yaml": document(4)})
    await followed.start_watching()
    assert followed.find_pods_limit() == "4"
    assert "there is none" in followed.keeper.list_errors()[0]


async def test_start_with_good_policy_ignores_last_good(followed: Followed) -> None:
    followed.fake.put(CONFIGMAPS, LAST_GOOD, data={"policy.yaml": document(4)})
    followed.apply(document(5))
    await followed.source.refresh()
    assert followed.find_pods_limit() == "5"
    assert followed.keeper.list_errors() == ()


async def test_bad_last_good_copy_is_reported_and_does_not_block_the_policy(followed: Followed) -> None:
    followed.fake.put(CONFIGMAPS, LAST_GOOD, data={"policy.yaml": BAD + "#"})
    followed.apply(document(5))
    await followed.source.refresh()
    assert followed.find_pods_limit() == "5"
    [errors] = followed.recorder.failed
    assert errors[0].startswith("configmap podgate-system/podgate-policy-last-good: policy.yaml:6:")


async def test_errors_of_a_policy_equal_to_its_copy_name_the_policy(followed: Followed) -> None:
    followed.fake.put(CONFIGMAPS, LAST_GOOD, data={"policy.yaml": BAD})
    followed.apply(BAD)
    await followed.source.refresh()
    [errors] = followed.recorder.failed
    assert errors[0].startswith(f"{THIS}: policy.yaml:6:")


@pytest.mark.parametrize("fields", [{}, {"binaryData": {"policy.yaml": "/w=="}}])
async def test_empty_copy_is_filled(followed: Followed, fields: dict[str, Any]) -> None:
    followed.fake.put(CONFIGMAPS, LAST_GOOD, **fields)
    followed.apply(document(5))
    await followed.start_watching()
    await wait_until(
        lambda: (followed.fake.find_stored(CONFIGMAPS, LAST_GOOD) or {}).get("data") == {"policy.yaml": document(5)}
    )
    assert "binaryData" not in (followed.fake.find_stored(CONFIGMAPS, LAST_GOOD) or {})


async def test_copy_is_not_reread_while_a_policy_is_in_force(followed: Followed) -> None:
    followed.apply(document(5))
    await followed.source.refresh()
    followed.fake.put(CONFIGMAPS, LAST_GOOD, data={"policy.yaml": document(4)})
    followed.apply(BAD)
    await followed.source.refresh()
    assert followed.find_pods_limit() == "5"


async def test_unreadable_copy_is_reported_and_does_not_block_the_policy(
    fake: FakeApiServer, client: Any, loops: Loops
) -> None:
    followed = Followed(fake, client, loops)
    fake.fail_next("get", refuse(403, "cannot get"), refuse(403, "cannot get"))
    for _ in range(2):
        await followed.source.refresh()
    [trouble] = followed.troubles
    await followed.source.refresh()
    fake.fail_next("get", refuse(403, "cannot get"))
    followed.apply(document(5))
    await followed.source.refresh()
    assert followed.find_pods_limit() == "5"
    assert followed.troubles == [trouble, trouble], "the first trouble had ended"
    assert trouble.startswith(
        "cannot read configmap podgate-system/podgate-policy-last-good: HTTP 403: cannot get: grant"
    )


async def test_unwritable_copy_is_reported_once_and_retried(followed: Followed) -> None:
    followed.fake.always["create"] = refuse(403, "cannot create")
    followed.apply(document(5))
    await followed.start_watching()
    await wait_until(lambda: followed.fake.verbs().count("create") > 3)
    assert followed.find_pods_limit() == "5"
    [trouble] = followed.troubles
    assert trouble.startswith(
        "cannot write configmap podgate-system/podgate-policy-last-good: HTTP 403: cannot create: "
    )
    assert "grant the right to create configmaps in podgate-system, and to get and update" in trouble
    followed.apply(document(6))
    await wait_until(lambda: followed.find_pods_limit() == "6")
    del followed.fake.always["create"]
    await wait_until(lambda: followed.read_kept() == document(6))
    assert len(followed.troubles) == 1
    followed.fake.fail_next("update", refuse(403, "cannot update"), refuse(403, "cannot create"))
    followed.apply(document(7))
    await wait_until(lambda: followed.read_kept() == document(7))
    assert len(followed.troubles) == 3
    followed.fake.fail_next("update", refuse(403, "cannot create"))
    followed.apply(document(8))
    await wait_until(lambda: followed.read_kept() == document(8))
    assert len(followed.troubles) == 4, "the first trouble had ended"


async def test_copy_written_first_by_another_server_is_no_trouble(followed: Followed) -> None:
    async def refuse_second_copy(_: web.Request) -> web.StreamResponse:
        followed.fake.put(CONFIGMAPS, LAST_GOOD, data={"policy.yaml": document(5)})
        return await refuse(409, "already exists")(_)

    followed.fake.fail_next("create", refuse_second_copy)
    followed.apply(document(5))
    await followed.start_watching()
    await wait_until(lambda: followed.read_kept() == document(5))
    await wait_until(lambda: followed.fake.verbs().count("get") == 3)
    followed.fake.put(CONFIGMAPS, LAST_GOOD, data={"policy.yaml": "in between"})
    followed.fake.fail_next("update", refuse(409, "the object has been modified"))
    followed.apply(document(6))
    await wait_until(lambda: followed.read_kept() == document(6))
    assert followed.troubles == []


async def test_failure_after_a_conflict_is_reported(followed: Followed) -> None:
    followed.fake.fail_next("create", refuse(409, "already exists"))
    followed.fake.always["create"] = refuse(403, "cannot create")
    followed.apply(document(5))
    await followed.start_watching()
    await wait_until(lambda: bool(followed.troubles))
    assert "HTTP 403" in followed.troubles[0]


async def test_endless_conflicts_are_reported(followed: Followed) -> None:
    followed.fake.always["create"] = refuse(409, "already exists")
    followed.apply(document(5))
    await followed.start_watching()
    await wait_until(lambda: followed.fake.verbs().count("create") > 3)
    assert len(followed.troubles) == 1


async def test_copy_changed_before_the_update_is_reread(followed: Followed) -> None:
    async def change_meanwhile(request: web.Request) -> web.StreamResponse:
        followed.fake.put(CONFIGMAPS, LAST_GOOD, data={"policy.yaml": "other"}, labels={"team": "a"})
        return await followed.fake.change(request)

    followed.fake.put(CONFIGMAPS, LAST_GOOD, data={"policy.yaml": "old"})
    followed.fake.fail_next("update", change_meanwhile)
    followed.apply(document(5))
    await followed.start_watching()
    await wait_until(lambda: followed.read_kept() == document(5))
    assert followed.fake.verbs().count("update") == 2
    stored = followed.fake.find_stored(CONFIGMAPS, LAST_GOOD)
    assert stored is not None
    assert stored["metadata"]["labels"] == {"team": "a"}


# Refresh


async def test_concurrent_refreshes_share_one_list(followed: Followed) -> None:
    followed.apply(document(5))
    await asyncio.gather(*(followed.source.refresh() for _ in range(20)))
    assert followed.fake.verbs().count("list") == 1
    await followed.source.refresh()
    assert followed.fake.verbs().count("list") == 2


async def test_refresh_is_skipped_within_the_cool_down(fake: FakeApiServer, client: Any, loops: Loops) -> None:
    followed = Followed(fake, client, loops, replace(QUICK, cool_down_seconds=3600))
    fake.fail_next("list", refuse(500))
    for _ in range(5):
        await followed.source.refresh()
    assert fake.verbs().count("list") == 1, "also after a failure"


async def test_cancelled_caller_does_not_stop_the_refresh(followed: Followed) -> None:
    followed.apply(document(5))
    impatient = asyncio.create_task(followed.source.refresh())
    patient = asyncio.create_task(followed.source.refresh())
    await asyncio.sleep(0)
    impatient.cancel()
    await patient
    assert followed.find_pods_limit() == "5"
    assert impatient.cancelled()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (hang, "no answer in time"),
        (refuse(500, "unwell"), "HTTP 500: unwell"),
        (refuse(403, "forbidden"), "grant the right to list and watch configmaps named podgate-policy"),
        (say(b"<html>"), "not understood"),
        (say(b"{", cut=True), "not completed"),
    ],
)
async def test_failed_refresh_is_reported_once_and_does_not_raise(
    fake: FakeApiServer, client: Any, loops: Loops, fault: Any, words: str
) -> None:
    followed = Followed(fake, client, loops, replace(QUICK, refresh_seconds=1))
    followed.fake.always["list"] = fault
    await followed.source.refresh()
    await followed.source.refresh()
    [trouble] = followed.troubles
    assert trouble.startswith(f"cannot read {THIS}: ")
    assert words in trouble
    assert followed.keeper.list_errors() == (), "the document was not read"
    del fake.always["list"]
    await followed.source.refresh()
    fake.fail_next("list", fault)
    await followed.source.refresh()
    assert len(followed.troubles) == 2, "the first trouble had ended"


async def test_defect_in_a_refresh_is_raised(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed.keeper, "on_unreadable", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await followed.source.refresh()


async def test_stop_does_not_wait_for_a_refresh(fake: FakeApiServer, client: Any, loops: Loops) -> None:
    followed = Followed(fake, client, loops, replace(QUICK, refresh_seconds=3600))
    await followed.start_watching()
    followed.fake.fail_next("list", hang)
    waiting = asyncio.create_task(followed.source.refresh())
    await wait_until(lambda: followed.fake.verbs().count("list") == 2)
    await loops.stop()
    await waiting


async def test_late_event_does_not_undo_a_refresh(followed: Followed) -> None:
    followed.apply(document(5))
    await followed.start_watching()
    late = dict(followed.fake.find_stored(CONFIGMAPS, POLICY) or {})
    [watch] = followed.fake.watching
    followed.fake.watching.clear()  # the watch lags behind
    followed.apply(document(6))
    followed.apply(document(7))
    await followed.source.refresh()
    assert followed.find_pods_limit() == "7"
    contacts = followed.contacts
    late["metadata"] = {**late["metadata"], "resourceVersion": str(followed.fake.revision - 1)}
    watch.offer(followed.fake.revision - 1, "MODIFIED", CONFIGMAPS, late)
    await wait_until(lambda: followed.contacts > contacts)
    assert followed.find_pods_limit() == "7"
    followed.fake.watching.append(watch)
    followed.apply(document(8))
    await wait_until(lambda: followed.find_pods_limit() == "8")


async def test_non_numeric_versions_apply_in_order_of_arrival(followed: Followed) -> None:
    followed.apply(document(5))
    await followed.start_watching()
    [watch] = followed.fake.watching
    changed = {**(followed.fake.find_stored(CONFIGMAPS, POLICY) or {}), "data": {"policy.yaml": document(6)}}
    changed["metadata"] = {**changed["metadata"], "resourceVersion": "v2-x"}
    watch.offer(followed.fake.revision + 1, "MODIFIED", CONFIGMAPS, changed)
    await wait_until(lambda: followed.find_pods_limit() == "6")


async def test_policy_loads_after_an_api_server_outage_at_start(followed: Followed) -> None:
    followed.fake.fail_next("list", refuse(503), refuse(503), refuse(503))
    await followed.source.refresh()
    assert followed.keeper.get_current() is None
    followed.apply(document(5))
    followed.run()
    await wait_until(lambda: followed.find_pods_limit() == "5")


async def test_reader_without_keeping_loads_last_good_and_writes_nothing(
    fake: FakeApiServer, client: Any, loops: Loops
) -> None:
    followed = Followed(fake, client, loops, keeps_last_good=False)
    fake.put(CONFIGMAPS, LAST_GOOD, data={"policy.yaml": document(4)})
    followed.apply(BAD)
    await followed.start_watching()
    await wait_until(lambda: followed.find_pods_limit() == "4")
    followed.apply(document(5))
    await wait_until(lambda: followed.find_pods_limit() == "5")
    for _ in range(20):  # in as many round trips it would have been written
        await followed.source.refresh()
    await loops.stop()
    assert not {"create", "update"} & set(fake.verbs())
