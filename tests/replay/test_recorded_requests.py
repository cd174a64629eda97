"""Requests in decision records: each Pod once, with the uid and verdict of its validating half."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from webhook.core.admission.decision import Half, Verdict
from webhook.core.reporting.decision_record import DecisionRecord, RecordedController, RecordedStatus
from webhook.replay.events import PodAsks
from webhook.replay.recorded_requests import list_requests

START = datetime(2026, 11, 24, 9, tzinfo=UTC)
HASH = {"podgate.io/policy-hash": "0123456789abcdef"}


def record(number: int, half: Half, uid: str = "", *, rewritten: bool = False, **fields: Any) -> DecisionRecord:
    metadata = {"generateName": "web-", **({"annotations": HASH} if rewritten else {})}
    given: dict[str, Any] = {
        "owner": RecordedController("ReplicaSet", "web", "rs"),
        "service": "web",
        "decision": Verdict.ADMIT,
        **fields,
    }
    return DecisionRecord(
        id=f"{number:04}",
        at=START + timedelta(seconds=number),
        replica="a",
        half=half,
        operation="CREATE",
        namespace="shop",
        name=f"web-{uid}" if uid else "web-",
        user="u",
        status=RecordedStatus(200),
        uid=uid,
        recorded=msgspec.Raw(msgspec.json.encode({"metadata": metadata, "spec": {"containers": []}})),
        **given,
    )


def mutate(number: int, **fields: Any) -> DecisionRecord:
    return record(number, Half.MUTATE, **fields)


def validate(number: int, uid: str, **fields: Any) -> DecisionRecord:
    return record(number, Half.VALIDATE, uid, rewritten=True, **fields)


def uids(*records: DecisionRecord) -> list[str | None]:
    return [event.uid for event in list_requests(records).make_events() if isinstance(event, PodAsks)]


def test_both_halves_are_one_request_with_the_uid_of_the_second() -> None:
    assert uids(mutate(0), mutate(1), validate(2, "a"), validate(3, "b")) == ["a", "b"]


def test_a_half_that_is_called_again_is_no_other_request() -> None:
    found = list_requests([mutate(0), mutate(1, rewritten=True), validate(2, "a"), mutate(3, rewritten=True)])
    assert [uid for _, uid in found.records] == ["a", "unfinished-0003"]


def test_a_denial_is_that_of_the_second_half() -> None:
    found = list_requests([mutate(0), validate(1, "a", decision=Verdict.DENY), mutate(2), validate(3, "b")])
    assert (found.denied, found.unfinished) == ({"a"}, frozenset())


def test_a_pod_without_a_second_half_was_refused_by_others_if_its_service_is_validated() -> None:
    found = list_requests([mutate(0), mutate(1), validate(2, "a")])
    assert found.unfinished == {"unfinished-0001"}
    assert list_requests([mutate(0), mutate(1)]).unfinished == frozenset()


def test_pods_of_other_controllers_do_not_share_their_halves() -> None:
    other = RecordedController("ReplicaSet", "api", "rs2")
    found = list_requests([mutate(0), mutate(1, owner=other), validate(2, "b", owner=other), validate(3, "a")])
    assert [uid for _, uid in found.records] == ["a", "b"]


def test_events_count_from_the_first_record_also_of_one_that_is_left_out() -> None:
    found = list_requests(
        [record(5, Half.VALIDATE, "old", workload="deployment.apps/web"), validate(65, "a"), mutate(95)]
    )
    assert found.since == START + timedelta(seconds=5)
    assert [event.at for event in found.make_events()] == [90]
    assert list(list_requests([]).make_events()) == []


def test_a_dry_run_has_its_own_second_half() -> None:
    found = list_requests([mutate(0, dry_run=True), mutate(1), validate(2, "a"), validate(3, "b", dry_run=True)])
    assert [uid for _, uid in found.records] == ["b", "a"]
