"""Checkers of windows, denials and charges: a good history passes, and each violation is told with all that matters."""

import pytest

from tests.chaos.built_history import START, BuiltHistory, build_limit_row
from tests.chaos.checkers import check
from tests.chaos.checkers.log_lines import format_moment


def list_told(built: BuiltHistory) -> list[str]:
    return [str(violation) for violation in check(built.build())]


def build_good() -> BuiltHistory:
    """Return two Pods in a window of two, a denial, and a Pod when the first has left."""
    built = BuiltHistory()
    built.admit("a", 1)
    built.admit("b", 20)
    built.review("c", 30, "Deny", codes=["QuotaExceeded"], limits=[build_limit_row(2)])
    built.request("create", "c", 30, code=429, message="QuotaExceeded")
    built.admit("d", 66.1)
    built.finish(80)
    return built


def test_a_good_history_has_no_violation() -> None:
    assert list_told(build_good()) == []


def test_a_window_that_holds_too_much_is_told() -> None:
    built = build_good()
    built.admit("e", 64.5)
    [told, *_] = list_told(built)
    assert told == (
        f"windows: service web: pods in 64s: 3, expected at most 2; at {format_moment(START + 64.5)}; no fault"
    )


def test_exactly_a_window_apart_is_no_violation() -> None:
    built = BuiltHistory()
    for number, at in enumerate((1, 1, 65, 65)):
        built.admit(f"p{number}", at)
    assert list_told(built) == []


@pytest.mark.parametrize("kind", ["pause", "redis-disk-full"])
def test_a_window_may_exceed_its_limit_by_the_bound_of_an_outage(kind: str) -> None:
    """With two servers, by one Pod, and by what each could not know of the other."""
    built = BuiltHistory()
    built.hurt(kind, "redis", 10, 30)
    built.admit("a", 5, review={"replica": "a"})
    built.review("x", 6, "Deny", codes=["QuotaExceeded"], replica="b", limits=[])
    for number, replica in enumerate("ab"):
        built.admit(f"p{number}", 15 + number, review={"replica": replica})
    assert not [told for told in list_told(built) if told.startswith("windows")]
    built.admit("q", 20, review={"replica": "a"})
    [told] = [told for told in list_told(built) if told.startswith("windows")]
    assert "web: pods in 64s: 4, expected at most 2 + 1 ((N - 1) * 1)" in told
    assert told.endswith(f"fault active: {kind} redis")


def test_allow_has_no_bound_during_an_outage_only() -> None:
    built = BuiltHistory()
    for number in range(3):
        built.admit(f"p{number}", 15 + number, "open")
    assert "windows: service free: pods in 64s: 3" in list_told(built)[0]
    built.hurt("pause", "redis", 10, 30)
    assert list_told(built) == []


def test_a_denial_without_cause_is_told() -> None:
    built = build_good()
    built.review("f", 70, "Deny", codes=["QuotaExceeded"], limits=[build_limit_row(2)])
    assert not list_told(built), "b and d are charged"
    built.review("g", 88, "Deny", codes=["QuotaExceeded"], limits=[build_limit_row(2)])
    told = list_told(built)
    assert told[0].startswith(
        "denials: Pod shop/g (g): denied by service web, pods in 64s: hard 2, charged 1, asked 1,"
        " expected more charged in the window and its bucket than fits; "
    )
    assert "used of service web, pods in 64s: 2, expected at most 1, as charged" in told[1]


def test_a_denial_within_the_bucket_is_the_stated_delay() -> None:
    built = BuiltHistory()
    built.admit("a", 1)
    built.admit("b", 1.5)
    built.review("c", 65.5, "Deny", codes=["QuotaExceeded"], limits=[build_limit_row(2)])
    assert list_told(built) == []
    built.review("d", 67, "Deny", codes=["QuotaExceeded"], limits=[build_limit_row(2)])
    assert "denials: Pod shop/d (d)" in list_told(built)[0]


def test_a_moment_that_is_too_late_is_told() -> None:
    built = BuiltHistory()
    for number in range(2):
        built.admit(f"p{number}", 1)
    late = format_moment(START + 90)
    built.review("c", 2, "Deny", codes=["QuotaExceeded"], limits=[build_limit_row(2, freeAt=late)])
    [told] = list_told(built)
    assert f"could pass from, pods in 64s: {late}, expected by {format_moment(START + 67.02)}" in told


def test_a_pod_that_is_charged_twice_is_told() -> None:
    built = build_good()
    built.charge("a", 40)
    assert any(told.startswith("charges: Pod a: moments of its charge: ") for told in list_told(built))


def test_a_pod_that_is_never_charged_is_told_unless_its_server_ended_in_an_outage() -> None:
    built = BuiltHistory()
    built.admit("a", 15)
    built.charges.clear()
    built.charge("b", 20)
    built.charge("b", 21, charged=20, refunded=True)
    built.finish(60)
    assert "charges: Pod shop/a (a): charge: none, expected one in service web" in list_told(built)[0]
    built.hurt("pause", "redis", 10, 30)
    assert "charges: Pod shop/a (a)" in list_told(built)[0], "its server was there to book it"
    built.hurt("kill", "server-1", 20, 21)
    assert list_told(built) == []


def test_a_charge_at_another_time_is_told() -> None:
    built = BuiltHistory()
    built.review("a", 15, "Admit")
    built.charge("a", 25)
    built.store("a", 15, decision="Admit")
    built.finish(60)
    assert "charges: Pod shop/a (a): charged at: " in list_told(built)[0]


def test_the_refund_of_a_pod_that_was_created_is_told() -> None:
    built = build_good()
    built.charge("a", 70, charged=1, refunded=True)
    assert any("charges: Pod shop/a (a): refunded: its charge was taken back" in told for told in list_told(built))


def test_a_refund_is_of_the_moment_when_it_was_seen_while_the_clock_of_redis_is_off() -> None:
    built = BuiltHistory()
    built.hurt("clock-step", "redis", 5, 30)
    built.charge("a", 70, seen=10)
    built.charge("a", 71, seen=11, charged=70, refunded=True)
    built.admit("a", 40)
    assert not [told for told in list_told(built) if "refunded" in told]
    built.charge("a", 50, charged=40, refunded=True)
    assert any("charges: Pod shop/a (a): refunded: its charge was taken back" in told for told in list_told(built))


def test_a_charge_that_is_submitted_again_after_a_loss_is_one_although_the_clock_of_redis_was_off() -> None:
    built = BuiltHistory()
    built.hurt("clock-step", "redis", 5, 12)
    built.charge("a", 70, seen=10)
    built.charge("a", 20, charged=19)
    built.review("a", 10, "Admit", "shop")
    built.store("a", 10, decision="Admit")
    assert any("moments of its charge" in told for told in list_told(built))
    built.hurt("redis-flush", "redis", 19, 19.1)
    assert list_told(built) == []


def test_a_pod_that_is_asked_for_again_after_a_refund_is_charged_once_although_the_clock_of_redis_was_off() -> None:
    built = BuiltHistory()
    built.hurt("clock-step", "redis", 5, 12)
    built.charge("a", 70, seen=10)
    built.charge("a", 71, seen=11, charged=70, refunded=True)
    built.admit("a", 40)
    assert not [told for told in list_told(built) if "moments of its charge" in told]


def test_a_denied_pod_that_keeps_its_place_is_told() -> None:
    built = BuiltHistory()
    built.hurt("pause", "redis", 10, 12)
    built.charge("a", 11)
    built.review("a", 11, "Deny", codes=["StoreUnavailable"], code=503)
    built.review("z", 29, "Admit", "open")
    built.finish(30)
    [told] = list_told(built)
    assert told.startswith("charges: Pod a: charge: kept since ")
    assert "expected taken back: it was denied" in told
    built.charge("a", 16, charged=11, refunded=True)
    assert list_told(built) == []


def test_the_charge_of_a_dry_run_is_told() -> None:
    built = BuiltHistory()
    built.review("a", 11, "Admit", dry_run=True)
    built.charge("a", 11)
    assert "charges: Pod shop/a (a): charge of a dry run: one, expected none" in list_told(built)[0]


@pytest.mark.parametrize(
    ("kind", "parts", "is_told"),
    [
        ("etcd-no-space", "etcd", True),
        ("etcd-leader-kill", "etcd", True),
        ("pause", "server-1", True),
        ("etcd-compaction", "cluster", False),
        ("kill", "controller-1", False),
        ("refuse", ["controller-1", "kube-apiserver-1"], False),
    ],
)
def test_what_was_never_created_is_refunded_whatever_etcd_stores(
    kind: str, parts: str | list[str], *, is_told: bool
) -> None:
    built = BuiltHistory(**{"controller-1": "controller", "kube-apiserver-1": "kube-apiserver"})
    built.hurt(kind, parts, 4, 6)
    built.review("a", 5, "Admit")
    built.charge("a", 5)
    built.request("create", "a", 5, code=500, message="etcdserver: mvcc: database space exceeded")
    built.finish(200)
    told = [line for line in list_told(built) if "charges: Pod a: charge: kept since" in line]
    assert bool(told) == is_told
    built.charge("a", 130, charged=5, refunded=True)
    assert not [line for line in list_told(built) if line.startswith("charges")]
