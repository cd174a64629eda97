"""Histories: what is written is read again, and tells what happened to an object."""

from pathlib import Path

import msgspec
import pytest

from tests.chaos.history import (
    BEGAN,
    DONE,
    Act,
    AuditEvent,
    ChargeWrite,
    End,
    Fault,
    History,
    Plan,
    PlannedFault,
    RedisSnapshot,
    Review,
    Status,
    Transition,
    read_history,
    write_history,
)
from tests.chaos.judging import judge
from tests.chaos.report import format_schedule, summarize
from tests.chaos.trace import trace

UID = "1f0c-uid"
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: [shop]}
"""
FLUSH = PlannedFault(1, "redis-flush", ("cluster",), 3.0, 3.0)


def build_end(*missing: str) -> End:
    """Return an end with nothing but what is missing."""
    return End(
        *(110.0, not missing, 1.0, missing, (), ()),
        statuses={},
        metrics={},
        queue=None,
        explanations={},
        service_statuses=(),
        events=(),
        leases=(),
    )


HISTORY = History(
    plan=Plan(7, 10.0, {"server-1": "server"}, {"0" * 16: POLICY}, (FLUSH,), began_at=100.0),
    faults=(Fault(103.0, 1, "redis-flush", ("cluster",), BEGAN),),
    acts=(Act(101.0, 101.2, "delete-pod", "Pod", "shop", "web-1", outcome=DONE, code=200),),
    audit=(
        AuditEvent(
            *(100.5, 100.6, "kube-apiserver", "a", "create", "u"),
            resource="pods",
            sub_resource="",
            namespace="shop",
            name="web-1",
            code=201,
        ),
    ),
    reviews=(
        Review(
            *(100.55, "server-1", "vm-1", "1-1", "validate", "CREATE", "", "shop"),
            name="web-1",
            uid=UID,
            user="u",
            service="web",
            decision="Admit",
            code=200,
            reason="",
            message="",
            policy="0" * 16,
            is_dry_run=False,
            uncounted=False,
            owner_uid="",
            breaker_state="",
            breaker_generation=0,
            record={"id": "1-1"},
        ),
    ),
    charges=(
        ChargeWrite(
            *(100_560_000, "redis-1", "master", f"podgate:{{web}}:v1:default:pod:{UID}", "web", UID, "4242"),
            charged_us=100_560_000,
            generation=0,
            probe=False,
            refunded=False,
            service="web",
            cost='{"pods":1}',
            high=False,
            windows="[]",
            source="",
            place="shop/web-1",
        ),
    ),
    redis=(RedisSnapshot(101.0, "redis-1", "r", "master", 1, 1, {"web": {UID: 100_560_000}}),),
    statuses=(Status(101.0, "server-1", {"ready": True}),),
    transitions=(
        Transition(102.0, "server-1", "breaker transition", "web", "", "CLOSED", "OPEN", reason="r", generation=1),
    ),
    end=build_end(),
    logs={"server-1": '{"msg":"listening"}\n'},
)


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_history(HISTORY, tmp_path)
    assert msgspec.json.encode(read_history(tmp_path)) == msgspec.json.encode(HISTORY)


def test_files_that_a_run_could_not_write_are_empty(tmp_path: Path) -> None:
    write_history(History(HISTORY.plan), tmp_path)
    for path in tmp_path.glob("*.jsonl"):
        path.unlink()
    assert msgspec.json.encode(read_history(tmp_path)) == msgspec.json.encode(History(HISTORY.plan))


@pytest.mark.parametrize("words", ["web-1", UID[:4]])
def test_the_trace_of_a_pod_has_all_that_happened_to_it_between_the_faults(words: str) -> None:
    assert [" ".join(line.split()) for line in trace(HISTORY, words)] == [
        "0.500 kube-apiserver create pods shop/web-1 by u: 201",
        "0.550 review of vm-1 validate CREATE web-1: Admit",
        '0.560 redis-1 for 4242 charged shop/web-1 of web as of 0.560: {"pods":1}',
        "1.000 act delete-pod Pod shop/web-1: done 200",
        "3.000 FAULT 1 redis-flush cluster began",
    ]


def test_the_summary_counts_what_happened() -> None:
    assert "faults: redis-flush 1" in summarize(HISTORY)
    assert "creations of Pods: 201 1" in summarize(HISTORY)
    assert format_schedule([FLUSH]).split() == ["3.0", "s", "at", "once", "redis-flush", "cluster"]


def test_a_traceback_in_a_log_and_what_is_not_at_rest_are_wrong() -> None:
    logs = {"server-1": "Traceback (most recent call last):\n  File x\nValueError: y\n"}
    flaws = judge(History(HISTORY.plan, logs=logs, end=build_end("Pod shop/web-1: has the gate podgate.io/quota")))
    assert any(flaw.startswith("server-1: Traceback") for flaw in flaws)
    assert "not at rest: Pod shop/web-1: has the gate podgate.io/quota" in flaws
