"""Checkers of reviews, breakers, failures and texts: a good history passes, and each violation is told."""

import json
from typing import Any

import pytest

from tests.chaos.built_history import START, BuiltHistory, build_status
from tests.chaos.checkers import check
from tests.chaos.checkers.calls import Calling, parse_duration
from tests.chaos.checkers.log_lines import format_moment


def list_told(built: BuiltHistory, **details: Any) -> list[str]:
    return [str(violation) for violation in check(built.build(**details))]


def test_a_pod_without_a_review_is_told() -> None:
    built = BuiltHistory()
    built.store("a", 5)
    [told] = list_told(built)
    assert told.startswith(
        "judged: Pod shop/a (a): review by the validating half: none, expected one: service web fails Closed; "
    )
    built.hurt("kill", "server-1", 4, 6)
    assert list_told(built), "a Closed service fails"


@pytest.mark.parametrize(
    ("kind", "parts", "is_excused"),
    [
        ("kill", ["server-1"], True),
        ("cut", ["kube-apiserver-1", "server-1"], True),
        ("token-revoked", ["server-1"], False),
        ("cut", ["server-1", "kube-apiserver-1"], False),
        ("etcd-no-space", ["etcd"], False),
        ("etcd-leader-kill", ["etcd"], False),
        ("kill", ["etcd-1"], False),
    ],
)
def test_an_open_service_may_lack_a_half_only_for_a_fault_by_which_calls_fail(
    kind: str, parts: list[str], *, is_excused: bool
) -> None:
    left_out = {Calling.VALIDATING.failure_key: "validate-open.podgate.io"}
    built = BuiltHistory(**{"kube-apiserver-1": "kube-apiserver", "etcd-1": "etcd"})
    built.hurt(kind, parts, 4, 6)
    built.store("a", 5, "open", audit=left_out)
    assert (list_told(built) == []) == is_excused


def test_an_open_service_lacks_a_half_only_where_the_api_server_says_so() -> None:
    built = BuiltHistory()
    built.hurt("kill", "server-1", 4, 6)
    built.store("a", 5, "open")
    [told] = list_told(built)
    assert told.startswith("judged: Pod open/a (a): review by the validating half: none, expected one: ")


def test_a_call_that_took_its_whole_timeout_may_fail_without_a_fault() -> None:
    left_out = {Calling.VALIDATING.failure_key: "validate-open.podgate.io"}
    built = BuiltHistory()
    built.store("a", 5, "open", audit={**left_out, Calling.VALIDATING.latency_key: "1.9s"})
    assert len(list_told(built)) == 1
    built.audit.clear()
    built.store("a", 5, "open", audit={**left_out, Calling.VALIDATING.latency_key: "3.01s"})
    assert list_told(built) == []


@pytest.mark.parametrize(("text", "seconds"), [("", 0), ("81.5ms", 0.0815), ("2.998s", 2.998), ("1m3.5s", 63.5)])
def test_a_duration_is_read_as_go_writes_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"labels": {"podgate.io/service": "free"}}, "label podgate.io/service: free, expected web"),
        ({"schedulerName": "other"}, "spec.schedulerName: other, expected podgate-scheduler"),
    ],
)
def test_a_pod_that_was_not_rewritten_is_told(given: dict[str, Any], told: str) -> None:
    built = BuiltHistory()
    built.admit("a", 5, **given)
    assert any(told in line and line.startswith("judged: Pod shop/a (a)") for line in list_told(built))


def test_a_stored_pod_that_was_denied_is_told() -> None:
    built = BuiltHistory()
    built.review("a", 5, "Deny")
    built.store("a", 5, decision="Deny")
    assert "judged: Pod shop/a (a): verdict: Deny, expected one that admits" in list_told(built)[0]


def test_a_denial_of_an_admitted_pod_is_told() -> None:
    built = BuiltHistory()
    built.admit("a", 5)
    built.review("a", 9, "Deny", message="no")
    assert "judged: Pod shop/a (a): asked again after it was admitted at " in list_told(built)[0]


@pytest.mark.parametrize(("state", "is_excused"), [("OPEN", True), ("FORCED_OPEN", True), ("HALF_OPEN", False)])
def test_an_open_breaker_may_deny_an_admitted_pod(state: str, *, is_excused: bool) -> None:
    built = open_breaker()
    built.admit("a", 2, "api")
    built.review("a", 6, "Deny", "api", codes=["BreakerOpen"], state=state, generation=1, code=503)
    assert any("asked again" in line for line in list_told(built)) != is_excused


def test_answers_fail_only_under_faults() -> None:
    built = BuiltHistory()
    built.request("create", "a", 5, code=500, message="failed calling webhook")
    built.review("b", 5, "Deny", codes=["StoreUnavailable"], code=503)
    told = sorted(list_told(built))
    assert "failures: Pod shop/a: answer to create: 500 failed calling webhook, expected no failure" in told[0]
    assert "failures: Pod shop/b (b): denied: , expected only while the store is away" in told[1]
    built.hurt("pause", "redis", 4, 6)
    assert list_told(built) == []


def test_a_missing_mutation_has_its_cause_in_the_whole_request() -> None:
    """On a busy machine the validating half may come long after the mutating one has failed."""
    built = BuiltHistory()
    built.review("a", 20, "Deny", codes=["MutationMissing"], code=403)
    left_out = {Calling.MUTATING.failure_key: "mutate.podgate.io"}
    built.request("create", "a", 20, code=403, began=12, audit=left_out)
    [told] = list_told(built)
    assert "denied: MutationMissing, expected only where the mutating half could not be called" in told
    built.hurt("etcd-leader-kill", "etcd", 10, 13)
    assert len(list_told(built)) == 1, "calls do not need etcd"
    built.hurt("kill", "server-2", 10, 13)
    assert list_told(built) == []
    built.audit.clear()
    built.request("create", "a", 20, code=403, began=12)
    assert len(list_told(built)) == 1, "the API server says of no call that it failed"


@pytest.mark.parametrize(
    ("reason", "fault"),
    [
        ("readonly: MISCONF Errors writing to the AOF file", "redis-disk-full"),
        ("full: OOM command not allowed", "redis-memory-full"),
        ("other: ERR", ""),
        ("script: ERR", ""),
    ],
)
def test_a_failure_of_the_store_has_a_cause(reason: str, fault: str) -> None:
    built = BuiltHistory()
    line = {"time": format_moment(START + 5), "msg": "the store does not respond; applying", "reason": reason}
    built.logs["server-1"] = json.dumps(line)
    [told] = list_told(built)
    assert f"failures: server-1: failure of the store: {reason}, expected a reason with a cause" in told
    built.hurt(fault or "pause", "redis", 4, 6)
    assert (list_told(built) == []) == bool(fault)


def test_allow_never_denies_for_want_of_the_store() -> None:
    built = BuiltHistory()
    built.hurt("pause", "redis", 4, 6)
    built.review("b", 5, "Deny", "open", codes=["StoreUnavailable"], code=503)
    [told] = list_told(built)
    assert told.endswith("fault active: pause redis")


def open_breaker(at: float = 5) -> BuiltHistory:
    """Return a history in which service api fails for four seconds, and opens."""
    built = BuiltHistory()
    for tenth in range(40):
        built.report(at - 4 + tenth / 10, 2, 2)
    built.move(at - 1.5, "CLOSED", "OPEN", 1)
    return built


def test_a_life_of_a_breaker_has_no_violation() -> None:
    built = open_breaker()
    built.review("a", 6, "Deny", "api", codes=["BreakerOpen"], state="OPEN", generation=1, code=503)
    built.move(13.5, "OPEN", "HALF_OPEN", 2)
    built.admit("b", 14, "api", review={"state": "HALF_OPEN", "generation": 2})
    built.move(15, "HALF_OPEN", "CLOSED", 3, part="server-2")
    assert list_told(built) == []


@pytest.mark.parametrize(
    ("moves", "told"),
    [
        ([(10, "OPEN", "CLOSED", 2), (11, "CLOSED", "HALF_OPEN", 3)], "transition: CLOSED to HALF_OPEN (reason)"),
        ([(10, "OPEN", "FORCED_CLOSED", 2, "openFor passed")], "transition: OPEN to FORCED_CLOSED (openFor passed)"),
        ([(10, "OPEN", "HALF_OPEN", 3)], "transition to generation 3: OPEN to HALF_OPEN in server-1"),
        ([(10, "OPEN", "HALF_OPEN", 2), (10, "OPEN", "HALF_OPEN", 2)], "expected generation 3 from HALF_OPEN"),
        ([(10, "HALF_OPEN", "CLOSED", 2)], "expected generation 2 from OPEN, told by one part"),
    ],
)
def test_a_transition_that_cannot_be_is_told(moves: list[Any], told: str) -> None:
    built = open_breaker()
    for at, old, new, generation, *reason in moves:
        built.move(at, old, new, generation, reason=(reason or ["reason"])[0])
    assert any(told in line and line.startswith("breakers: api: ") for line in list_told(built)), list_told(built)


def test_more_probes_than_places_are_told() -> None:
    built = open_breaker()
    built.move(14, "OPEN", "HALF_OPEN", 2)
    for number in range(2):
        built.admit(f"p{number}", 15 + number, "api", review={"state": "HALF_OPEN", "generation": 2})
    assert any(
        "Pods admitted in HALF_OPEN, generation 2: 2, expected at most 1 probes" in line for line in list_told(built)
    )


def test_servers_that_show_other_states_are_told() -> None:
    built = BuiltHistory()
    rows = [{"name": "api", "breaker": {"state": state, "generation": 1}} for state in ("OPEN", "CLOSED")]
    statuses = {f"server-{number}": build_status(row) for number, row in enumerate(rows, 1)}
    built.finish(60, statuses=statuses)
    [told] = list_told(built)
    assert "breakers: api: breaker in the end: server-1 OPEN 1, server-2 CLOSED 1, expected the same" in told


def test_an_open_breaker_after_its_time_is_told() -> None:
    built = BuiltHistory()
    breaker = {"state": "OPEN", "generation": 1, "openUntil": format_moment(START + 5)}
    built.show(7, {"name": "api", "breaker": breaker})
    assert list_told(built) == []
    built.show(9, {"name": "api", "breaker": breaker})
    assert "breakers: api: OPEN in server-1 until: " in list_told(built)[0]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a\n-----BEGIN PRIVATE KEY-----\n", "line 2: a private key: "),
        (f"token eyJ{'a' * 12}.eyJ{'b' * 12}.{'c' * 30}", "line 1: a token: eyJ"),
        ('{"Authorization": "Bearer 0123456789abcdef"}', "an Authorization header: "),
        ("redis://podgate:hunter2@redis:6379/0", "a password in a URL: "),
        ("the password is tell-nobody", "a password: tell-nobody"),
    ],
)
def test_a_secret_in_a_log_is_told(text: str, what: str) -> None:
    built = BuiltHistory()
    built.logs["server-1"] = text
    [told] = list_told(built, secrets=["tell-nobody"])
    assert told.startswith("secrets: log of server-1: ")
    assert what in told


def test_a_clean_log_is_judged() -> None:
    built = BuiltHistory()
    built.logs["server-1"] = '{"msg": "listening", "store": "redis://podgate@redis:6379/0"}'
    assert list_told(built) == []
