"""The checker of the number of servers that divide limits: right histories pass, and each wrong change is told."""

from typing import Any

import pytest

from tests.chaos.built_history import START, BuiltHistory
from tests.chaos.checkers import check
from tests.chaos.checkers.log_lines import format_moment
from tests.chaos.checkers.replica_counts import LEASES, NO_SPACE
from tests.chaos.history import FAILED, Fault

TOLD = "windows: server-1: servers that divide limits"


def list_told(built: BuiltHistory, **details: Any) -> list[str]:
    return [str(violation) for violation in check(built.build(**details))]


def count_each_second(built: BuiltHistory, begin: int, end: int, servers: int) -> None:
    for at in range(begin, end):
        built.count(at, servers)


def build_without_space(servers: int, *, began: float = 100, ended: float = 112) -> BuiltHistory:
    """Return a history in which a server counts two, and others from the middle of a time without space in etcd."""
    built = BuiltHistory(etcd="etcd")
    built.hurt(NO_SPACE, "etcd", began, ended)
    count_each_second(built, 90, 106, 2)
    count_each_second(built, 106, 120, servers)
    return built


def test_a_number_that_stays_is_right() -> None:
    assert list_told(build_without_space(2)) == []


@pytest.mark.parametrize("servers", [1, 3])
def test_a_change_while_no_lease_can_be_written_is_told(servers: int) -> None:
    [told] = list_told(build_without_space(servers))
    assert told == (
        f"{TOLD}: {servers}, expected 2: no Lease could be written; at {format_moment(START + 106)};"
        f" fault active: {NO_SPACE} etcd"
    )


def test_a_change_is_right_where_the_alarm_was_not_raised() -> None:
    built = build_without_space(3)
    built.faults[-1] = Fault(START + 112, 1, NO_SPACE, ("etcd",), FAILED)
    assert list_told(built) == []


def test_a_server_that_starts_without_leases_counts_anew() -> None:
    built = build_without_space(1)
    built.hurt("kill", "server-1", 103, 105)
    assert list_told(built) == []
    other = build_without_space(1)
    other.hurt("kill", "server-2", 103, 105)
    assert len(list_told(other)) == 1, "the others could not notice it"


@pytest.mark.parametrize(
    ("kind", "part", "at", "is_right"),
    [
        ("kill", "server-2", 80, True),
        ("exited", "server-2", 80, True),
        ("kill", "server-2", 30, False),
        ("kill", "redis", 80, False),
        ("etcd-leader-kill", "etcd", 80, False),
    ],
)
def test_a_number_falls_only_after_a_server_has_ended(kind: str, part: str, at: float, *, is_right: bool) -> None:
    built = BuiltHistory(etcd="etcd")
    built.hurt(kind, part, at, at + 2)
    count_each_second(built, 90, 110, 2)
    count_each_second(built, 110, 120, 1)
    told = list_told(built)
    assert (told == []) == is_right
    assert all(f"{TOLD}: 1, expected at least 2: no server has ended" in line for line in told)


def test_the_time_in_which_nobody_can_count_is_added() -> None:
    built = BuiltHistory(etcd="etcd")
    built.hurt("restart", "server-2", 20, 20)
    built.hurt("etcd-leader-kill", "etcd", 21, 105)
    count_each_second(built, 10, 110, 2)
    count_each_second(built, 110, 120, 1)
    assert list_told(built) == []


def test_those_that_have_ended_are_forgotten() -> None:
    built = BuiltHistory()
    count_each_second(built, 10, 20, 4)
    count_each_second(built, 20, 30, 2)
    assert list_told(built) == []


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_at_rest_all_are_counted(servers: int) -> None:
    built = BuiltHistory()
    replicas = {"count": servers, "ordinal": 0, "source": LEASES}
    built.finish(200, statuses={"server-1": {"replicas": replicas}})
    told = list_told(built)
    assert (told == []) == (servers == 2)
    assert all(f"{TOLD} in the end: {servers}, expected 2" in line for line in told)


def test_a_number_that_an_operator_has_set_is_not_judged() -> None:
    built = BuiltHistory()
    built.finish(200, statuses={"server-1": {"replicas": {"count": 5, "ordinal": 0, "source": "settings"}}})
    assert list_told(built) == []
