import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.adapters.policy_file import FakeClock, Recorder, document
from tests.harness.policy_checks import ImmediateCheck
from tests.timeouts import HANG_SECONDS
from webhook.adapters import policy_file
from webhook.adapters.policy_file import PolicyFile
from webhook.core.document import Purpose
from webhook.core.policy.history import REMEMBERED_US
from webhook.policy_in_force.policy_receiver import PolicyReceiver
from webhook.ports import Observer, PolicySource
from webhook.support import watched_file


class Watched:
    """A policy file in its own folder, and its reports."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "policy.yaml"
        self.clock = FakeClock()
        self.recorder = Recorder()
        observer: Observer = self.recorder
        self.keeper = PolicyReceiver(observer, self.clock, ImmediateCheck())
        self.source = PolicyFile(self.path, self.keeper, poll_seconds=0)

    async def write(self, text: str) -> None:
        self.path.write_text(text)
        await self.source.refresh()

    def pods(self) -> str:
        loaded = self.keeper.get_current()
        assert loaded is not None
        quota = loaded.policy.services[0].quota
        assert quota is not None
        return quota.windows[0].hard["pods"].text


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_new_source_has_no_policy(watched: Watched) -> None:
    source: PolicySource = watched.keeper
    assert source.get_current() is None


async def test_missing_file_is_reported_and_gives_no_policy(watched: Watched) -> None:
    await watched.source.refresh()
    assert watched.keeper.get_current() is None
    assert "cannot read the policy" in watched.keeper.list_errors()[0]
    assert watched.keeper.loaded_at_us == 0


async def test_good_document_is_in_force_at_once(watched: Watched) -> None:
    await watched.write(document(5))
    assert watched.pods() == "5"
    assert watched.keeper.list_errors() == ()
    assert watched.keeper.loaded_at_us == watched.clock.us
    assert watched.recorder.loaded == [watched.keeper.get_loaded()]


async def test_change_is_loaded_and_reported_once(watched: Watched) -> None:
    await watched.write(document(5))
    await watched.write(document(6))
    await watched.source.refresh()
    assert watched.pods() == "6"
    assert len(watched.recorder.loaded) == 2


async def test_rewrite_of_equal_size_and_time_is_detected(watched: Watched) -> None:
    await watched.write(document(5))
    before = watched.path.stat()
    watched.path.write_text(document(6))
    os.utime(watched.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    await watched.source.refresh()
    assert watched.pods() == "6"


async def test_bad_document_keeps_the_last_good_and_is_reported_once(watched: Watched) -> None:
    await watched.write(document(5))
    await watched.write(document(5).replace("pods", "pod"))
    await watched.source.refresh()
    assert watched.pods() == "5"
    [lines] = watched.recorder.failed
    assert lines == watched.keeper.list_errors()
    assert lines[0].startswith(f"{watched.path}:6:")
    assert "did you mean pods?" in lines[0]


async def test_another_bad_document_is_reported_again(watched: Watched) -> None:
    await watched.write("kind: Policies\n")
    await watched.write("kind: Polices\n")
    assert len(watched.recorder.failed) == 2


async def test_deleted_file_keeps_the_last_good_and_is_reported_once(watched: Watched) -> None:
    await watched.write(document(5))
    watched.path.unlink()
    await watched.source.refresh()
    await watched.source.refresh()
    assert watched.pods() == "5"
    assert len(watched.recorder.failed) == 1


async def test_restored_document_ends_the_trouble(watched: Watched) -> None:
    await watched.write(document(5))
    since = watched.keeper.loaded_at_us
    watched.clock.us += 1_000_000
    await watched.write("kind: Policies\n")
    await watched.write(document(5))
    assert watched.keeper.list_errors() == ()
    assert len(watched.recorder.loaded) == 2, "observers are informed of the end of the trouble"
    assert watched.keeper.loaded_at_us == since, "it was in force all along"


async def test_namespace_selector_without_a_cluster_is_refused(watched: Watched) -> None:
    text = document(5).replace("namespaces: [payments]", "namespaceSelector: {matchLabels: {a: b}}")
    await watched.write(text)
    assert watched.keeper.list_errors() == ()
    alone = PolicyReceiver(watched.recorder, watched.clock, ImmediateCheck(), Purpose.SERVE_ALONE)
    await PolicyFile(watched.path, alone).refresh()
    assert "`serve` runs without a cluster" in alone.list_errors()[0]


async def test_replaced_policy_is_found_by_hash_for_60_s(watched: Watched) -> None:
    await watched.write(document(5))
    old = watched.keeper.get_current()
    assert old is not None
    watched.clock.us += 3_600_000_000
    await watched.write(document(6))
    watched.clock.us += REMEMBERED_US
    assert watched.keeper.find_by_hash(old.hash) is old
    watched.clock.us += 1
    assert watched.keeper.find_by_hash(old.hash) is None


async def test_policy_in_force_is_found_by_hash_at_any_age(watched: Watched) -> None:
    await watched.write(document(5))
    watched.clock.us += 10 * REMEMBERED_US
    current = watched.keeper.get_current()
    assert current is not None
    assert watched.keeper.find_by_hash(current.hash) is current
    assert watched.keeper.find_by_hash("0" * 16) is None


async def test_restored_policy_is_in_force_and_the_other_is_still_found(watched: Watched) -> None:
    await watched.write(document(5))
    await watched.write(document(6))
    between = watched.keeper.get_current()
    await watched.write(document(5))
    watched.clock.us += REMEMBERED_US
    assert watched.pods() == "5"
    assert between is not None
    assert watched.keeper.find_by_hash(between.hash) is between
    assert between is not watched.keeper.get_current()


async def test_concurrent_refreshes_share_one_read(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.path.write_text(document(5))
    readings = record_readings(monkeypatch)
    await asyncio.gather(*(watched.source.refresh() for _ in range(20)))
    assert len(readings) == 1
    await watched.source.refresh()
    assert len(readings) == 2


def record_readings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    readings: list[Path] = []
    real: Callable[..., bytes] = watched_file.read_regular

    def record_and_read(path: Path, bytes_max: int) -> bytes:
        readings.append(path)
        return real(path, bytes_max)

    monkeypatch.setattr(policy_file, "read_regular", record_and_read)
    return readings


async def test_cancelled_caller_does_not_stop_the_refresh(watched: Watched) -> None:
    watched.path.write_text(document(5))
    impatient = asyncio.create_task(watched.source.refresh())
    patient = asyncio.create_task(watched.source.refresh())
    await asyncio.sleep(0)
    impatient.cancel()
    await patient
    assert watched.pods() == "5"
    assert impatient.cancelled()


async def test_configmap_symlink_swap_is_detected(watched: Watched) -> None:
    """A mounted ConfigMap: policy.yaml -> ..data/policy.yaml, ..data -> a folder that is swapped as a whole."""
    folder = watched.path.parent
    for name, pods in (("first", 5), ("second", 6)):
        (folder / name).mkdir()
        (folder / name / "policy.yaml").write_text(document(pods))
    (folder / "..data").symlink_to("first")
    watched.path.symlink_to("..data/policy.yaml")
    task = asyncio.create_task(watched.source.run())
    try:
        await wait_until(lambda: watched.keeper.get_current() is not None)
        assert watched.pods() == "5"
        (folder / "..data_tmp").symlink_to("second")
        (folder / "..data_tmp").rename(folder / "..data")
        await wait_until(lambda: watched.pods() == "6")
    finally:
        task.cancel()


async def wait_until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not holds():  # noqa: ASYNC110  the test waits for a file read, which has no event
            await asyncio.sleep(0)


async def test_pipe_does_not_block_the_watch(watched: Watched) -> None:
    os.mkfifo(watched.path)
    await watched.source.refresh()
    assert "not a regular file" in watched.keeper.list_errors()[0]


async def test_huge_file_is_not_read_whole(watched: Watched) -> None:
    with watched.path.open("wb") as file:
        file.truncate(1 << 40)
    await watched.source.refresh()
    assert "1 MiB" in watched.keeper.list_errors()[0]
