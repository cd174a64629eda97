"""What one process tells the next of the store, and the losses that the next one notices by it."""

from collections.abc import Mapping

import pytest

from webhook.adapters.redis_store.loss_detector import LossDetector

HOME, OTHER = "podgate:{web}:v1:default:ring:web", "podgate:{api}:v1:default:ring:api"


def detect(lanes: Mapping[str, str] | None = None) -> tuple[LossDetector, list[None]]:
    losses: list[None] = []
    find_lane = (lambda _: "") if lanes is None else lanes.__getitem__
    return LossDetector(lambda: losses.append(None), find_lane), losses


def describe() -> str:
    """Return what a process tells that has seen a charge, which counts until 100."""
    former, _ = detect()
    former.record_histories({"": "a"})
    former.record_birth(HOME, 5, 40, 100)
    return former.describe()


def test_next_process_notices_no_loss_of_a_store_that_is_as_it_was() -> None:
    following, losses = detect()
    following.resume(describe())
    following.record_histories({"": "a"})
    following.record_birth(HOME, 5, 50, 110)
    following.record_birth(OTHER, 7, 50, 110)
    assert losses == []


def test_next_process_notices_another_server_process_once() -> None:
    following, losses = detect()
    following.resume(describe())
    following.on_connected("", "b")
    following.record_histories({"": "b"})
    following.record_birth(HOME, 60, 61, 110)
    assert losses == [None]


@pytest.mark.parametrize("born_us", [0, 60], ids=["none", "new"])
def test_next_process_notices_that_counters_of_the_same_process_are_gone(born_us: int) -> None:
    following, losses = detect()
    following.resume(describe())
    following.record_histories({"": "a"})
    following.record_birth(HOME, born_us, 70, None)
    assert losses == [None]


def test_counters_whose_charges_had_all_expired_are_no_loss() -> None:
    following, losses = detect()
    following.resume(describe())
    following.record_birth(HOME, 0, 100, None)
    assert losses == []


@pytest.mark.parametrize("text", ["", "x", "[]", '{"processes": {"": 1}, "births": {}}', '{"births": {}}'])
def test_without_a_description_nothing_is_noticed_that_was_not_before(text: str) -> None:
    following, losses = detect()
    following.resume(text)
    following.record_histories({"": "b"})
    following.record_birth(HOME, 60, 61, 110)
    assert losses == []
    following.resume(text)
    following.record_histories({"": "c"})
    assert losses == [None], "what it knows itself stays"


def test_description_goes_on_from_one_process_to_the_next_that_has_seen_nothing() -> None:
    following, _ = detect()
    following.resume(describe())
    assert following.describe() == describe()
    assert detect()[0].describe() == ""


def test_process_that_has_noticed_a_loss_describes_the_store_after_it() -> None:
    former, _ = detect()
    former.resume(describe())
    former.record_histories({"": "b"})
    following, losses = detect()
    following.resume(former.describe())
    following.record_histories({"": "b"})
    following.record_birth(HOME, 60, 61, 110)
    assert losses == []


def test_description_has_the_longest_counting_birth_of_each_node() -> None:
    lanes = {"web": "10.0.0.1:6379", "api": "10.0.0.2:6379"}
    former, _ = detect(lanes)
    former.record_histories({"10.0.0.1:6379": "a", "10.0.0.2:6379": "b"})
    for number in range(1000):
        former.record_birth(f"podgate:{{web}}:v1:default:ring:{number}", 5, 40, 100 + number)
    former.record_birth(OTHER, 6, 40, 100)
    assert len(former.describe()) < 300
    for home, born_us in {"podgate:{web}:v1:default:ring:999": 5, OTHER: 6}.items():
        following, losses = detect(lanes)
        following.resume(former.describe())
        following.record_birth(home, born_us, 99, None)
        assert losses == []
        following.record_birth(home, 0, 99, None)
        assert losses == [None]


@pytest.mark.parametrize(
    ("known", "now", "count"),
    [("a", "a", 0), ("a", "b", 1), ("a", "a:1", 1), ("a:1", "a:2", 1), ("a:1", "b:1", 1), ("a:1", "a", 0)],
)
def test_process_that_was_promoted_since_is_a_loss(known: str, now: str, count: int) -> None:
    detector, losses = detect()
    detector.record_histories({"": known})
    detector.on_connected("", now)
    detector.record_histories({"": now})
    assert len(losses) == count


def test_node_of_a_cluster_that_did_not_answer_for_a_while_has_lost_nothing() -> None:
    detector, losses = detect()
    detector.record_histories({"1": "a", "2": "b"})
    detector.record_histories({"1": "", "2": "b"})
    detector.on_connected("1", "a")
    detector.record_histories({"1": "a", "2": "b"})
    assert losses == []
    detector.record_histories({"1": "", "2": "b"})
    detector.on_connected("1", "c")
    detector.record_histories({"1": "c", "2": "b"})
    assert losses == [None], "another process"
    detector.record_histories({"2": "b"})
    detector.record_histories({"1": "c", "2": "b"})
    assert losses == [None, None], "it had no slots meanwhile: another node may have been written to"
