"""Checkers of a Redis Cluster: the fault of a node excuses only the services whose slots it has."""

import json
from collections.abc import Callable, Sequence

import pytest

from tests.chaos.built_history import START, BuiltHistory, build_limit_row
from tests.chaos.checkers import check
from tests.chaos.checkers.faults import Faults
from tests.chaos.checkers.log_lines import format_moment
from tests.chaos.history import BEGAN, ENDED, SLOW_NODE, TAG, Fault
from tests.chaos.shards import find_shard, number_shards

NODES = ("redis-1", "redis-2", "redis-3")
OWN = NODES[find_shard("web")]
OTHER, THIRD = (node for node in NODES if node != OWN)
FAILED, AGAIN = "the store does not respond; applying", "the store responds again"
LATE = "timeout: no answer within 1000 ms"

of_either_node = pytest.mark.parametrize(("node", "is_excused"), [(OWN, True), (OTHER, False)])


def build_cluster() -> BuiltHistory:
    built = BuiltHistory(**dict.fromkeys(NODES, "redis"))
    built.parts.pop("redis")
    return built


def list_told(built: BuiltHistory) -> list[str]:
    return [str(violation) for violation in check(built.build(shards=number_shards(NODES)))]


def log(built: BuiltHistory, *lines: tuple[float, str]) -> None:
    """Let a server that runs log messages, each with the same reason."""
    built.show(lines[0][0] - 1)
    documents = [{"time": format_moment(START + at), "msg": message, "reason": LATE} for at, message in lines]
    built.logs["server-1"] = "\n".join(map(json.dumps, documents))


def exceed(built: BuiltHistory) -> None:
    for number in range(3):
        built.admit(f"p{number}", 15 + number)


def deny(built: BuiltHistory) -> None:
    built.review("d", 15, "Deny", codes=["StoreUnavailable"], code=503)


def deny_by_quota(built: BuiltHistory) -> None:
    built.charge("c", 2)
    built.review("q", 15, "Deny", codes=["QuotaExceeded"], limits=[build_limit_row(2)])


@of_either_node
@pytest.mark.parametrize(
    ("act", "told"),
    [
        (exceed, "windows: service web: pods in 64s: 3"),
        (deny, "failures: Pod shop/d (d): denied: "),
        (deny_by_quota, "denials: Pod shop/q (q): denied by service web"),
    ],
)
@pytest.mark.parametrize("is_late", [True, False])
def test_only_services_of_a_node_that_fails_are_excused(
    act: Callable[[BuiltHistory], None], told: str, node: str, *, is_late: bool, is_excused: bool
) -> None:
    """Also while servers say that the store answers late: so it is, of that node."""
    built = build_cluster()
    built.hurt("pause", node, 10, 30)
    if is_late:
        log(built, (11.5, FAILED), (31, AGAIN))
    act(built)
    assert any(told in line for line in list_told(built)) != is_excused


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("pause", ["server-1"]),
        ("cut", ["server-1", "redis"]),
        ("other-webhook-denies", ["cluster"]),
    ],
)
def test_late_answers_excuse_all_services_unless_only_nodes_were_hit(kind: str, parts: Sequence[str]) -> None:
    built = build_cluster()
    built.hurt(kind, parts, 8, 11)
    log(built, (11.5, FAILED), (31, AGAIN))
    deny(built)
    assert list_told(built) == []
    built.hurt("pause", OTHER, 10, 30)
    assert (list_told(built) == []) == (kind != "other-webhook-denies")


def test_a_server_that_is_cut_from_all_nodes_is_excused_for_all_services() -> None:
    built = build_cluster()
    built.hurt("cut", ["server-1", "redis"], 10, 30)
    deny(built)
    assert list_told(built) == []


def test_late_answers_excuse_all_services_where_the_server_did_not_run() -> None:
    built = build_cluster()
    built.hurt("pause", OTHER, 10, 30)
    log(built, (11.5, FAILED), (31, AGAIN))
    deny(built)
    assert len(list_told(built)) == 1
    built.statuses.clear()
    built.show(8)
    assert list_told(built) == []


def test_late_answers_excuse_all_services_while_a_slot_moves() -> None:
    built = build_cluster()
    built.hurt("redis-slot-moved", OTHER, 10, 14, **{TAG: "free"})
    log(built, (11.5, FAILED), (31, AGAIN))
    deny(built)
    assert list_told(built) == []


def test_a_node_that_was_slow_for_the_harness_too_is_excused() -> None:
    built = build_cluster()
    built.hurt("pause", OTHER, 10, 30)
    log(built, (11.5, FAILED), (31, AGAIN))
    deny(built)
    assert len(list_told(built)) == 1
    for at, phase in ((11, BEGAN), (12, ENDED)):
        built.faults.append(Fault(START + at, 0, SLOW_NODE, (OWN,), phase))
    assert list_told(built) == []


def test_late_answers_end_with_the_same_reason_or_with_the_process() -> None:
    """Each node has such lines of its own."""
    built = build_cluster()
    log(built, (5, FAILED), (6, FAILED), (8, AGAIN), (20, "listening"))
    faults = Faults(built.build(shards=number_shards(NODES)))
    found = sorted((span.began - START, span.ended - START) for span in faults.store_spans)
    assert found == [(pytest.approx(3), pytest.approx(8 + 12)), (pytest.approx(4), pytest.approx(20 + 12))]


def test_a_tag_whose_slot_moves_may_be_on_any_node_and_others_are_not_concerned() -> None:
    built = build_cluster()
    built.hurt("redis-slot-moved", OWN, 1, 1, **{TAG: "free"})
    built.review("e", 1, "Deny", codes=["StoreUnavailable"], code=503)
    [told] = list_told(built)
    assert "failures: Pod shop/e (e): denied: " in told
    built.reviews.clear()
    built.hurt("pause", OTHER, 40, 50)
    built.review("e", 45, "Deny", codes=["StoreUnavailable"], code=503)
    assert len(list_told(built)) == 1
    built.hurt("redis-slot-moved", OWN, 30, 30, **{TAG: "web"})
    assert list_told(built) == []


@pytest.mark.parametrize(("kind", "is_excused"), [("pause", True), ("clock-step", True), ("redis-flush", False)])
def test_two_nodes_that_are_away_at_once_take_the_third_one_down(kind: str, *, is_excused: bool) -> None:
    """Without a majority of masters it answers CLUSTERDOWN."""
    built = build_cluster()
    built.hurt("kill", OTHER, 10, 20)
    deny(built)
    assert len(list_told(built)) == 1
    built.hurt(kind, THIRD, 14, 18)
    assert (list_told(built) == []) == is_excused


@pytest.mark.parametrize(("kind", "is_excused"), [("redis-flush", True), ("pause", False)])
def test_all_services_keep_to_shares_after_a_loss_of_any_node(kind: str, *, is_excused: bool) -> None:
    told = "; could pass as others leave; until then these are this replica's shares of the limits"
    built = build_cluster()
    built.hurt(kind, OTHER, 10, 12)
    built.charge("c", 2)
    built.review("q", 14, "Deny", codes=["QuotaExceeded"], limits=[build_limit_row(2)], message=told)
    assert (list_told(built) == []) == is_excused
    built.reviews.clear()
    built.review("q", 14, "Deny", codes=["QuotaExceeded"], limits=[build_limit_row(2)])
    assert list_told(built), "the store has decided"


@pytest.mark.parametrize(("nodes", "is_lost"), [(3, False), (6, True)])
def test_a_node_without_a_replica_loses_nothing_by_a_pause(nodes: int, *, is_lost: bool) -> None:
    names = [f"redis-{number}" for number in range(1, nodes + 1)]
    built = BuiltHistory(**dict.fromkeys(names, "redis"))
    built.parts.pop("redis")
    built.hurt("pause", names[0], 10, 30)
    faults = Faults(built.build(shards=number_shards(names)))
    assert faults.loses_data(faults.spans[0]) == is_lost
