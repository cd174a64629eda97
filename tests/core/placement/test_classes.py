"""Scheduler, priority class and runtime class by example: conflicts and dependent fields."""

from typing import Any

import pytest

from tests.core.generating.classes import build_manager
from tests.core.generating.vocabulary import Json
from tests.core.placement.examples import list_operations, pod


@pytest.mark.parametrize(
    ("own", "rule", "expected"),
    [
        (None, "Deny", [("add", "podgate-scheduler")]),
        ("", "Deny", [("replace", "podgate-scheduler")]),
        ("default-scheduler", "Deny", [("replace", "podgate-scheduler")]),
        ("podgate-scheduler", "Deny", []),
        ("their-scheduler", "Deny", []),
        ("their-scheduler", "Keep", []),
        ("their-scheduler", "Override", [("replace", "podgate-scheduler")]),
    ],
)
def test_scheduler_name_by_conflict_rule(own: str | None, rule: str, expected: list[tuple[str, str]]) -> None:
    raw = pod(schedulerName=own) if own is not None else pod()
    found = list_operations(raw, schedulerName="podgate-scheduler", onConflict={"schedulerName": rule})
    assert [(operation["op"], operation["value"]) for operation in found] == expected


FILLED = {"priority": 7, "preemptionPolicy": "PreemptLowerPriority"}
SET = [("add", "/spec/priorityClassName"), ("remove", "/spec/priority"), ("remove", "/spec/preemptionPolicy")]
RESET = [("replace", "/spec/priorityClassName"), *SET[1:]]
CHOSEN, FILLED_IN = [build_manager("priorityClassName")], [build_manager(with_look_alikes=True)]


@pytest.mark.parametrize(
    ("spec", "entries", "rule", "expected"),
    [
        ({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}, FILLED_IN, "Deny", SET),
        ({}, None, "Deny", SET[:1]),
        ({"priorityClassName": "ours", **FILLED}, CHOSEN, "Deny", []),
        ({"priorityClassName": "global", **FILLED}, FILLED_IN, "Deny", RESET),
        ({"priorityClassName": "theirs", **FILLED}, CHOSEN, "Deny", []),
        ({"priorityClassName": "theirs", **FILLED}, CHOSEN, "Keep", []),
        ({"priorityClassName": "theirs", **FILLED}, CHOSEN, "Override", RESET),
        ({"priorityClassName": "theirs"}, None, "Deny", []),
        ({"priorityClassName": "theirs"}, [*FILLED_IN, *CHOSEN], "Deny", []),
    ],
    ids=["none", "as_written", "ours", "default", "theirs", "kept", "overridden", "in_a_file", "by_one_of_two"],
)
def test_priority_class_by_conflict_rule_and_its_priority_is_removed(
    spec: Json, entries: list[Json] | None, rule: str, expected: list[Any]
) -> None:
    raw = pod({"managedFields": entries} if entries else None, **spec)
    found = list_operations(raw, priorityClassName="ours", onConflict={"priorityClassName": rule})
    assert [(operation["op"], operation["path"]) for operation in found] == expected


@pytest.mark.parametrize(
    ("spec", "rule", "expected"),
    [
        ({}, "Deny", [("add", "/spec/runtimeClassName")]),
        ({"runtimeClassName": "gvisor", "overhead": {"cpu": "50m"}}, "Override", []),
        ({"runtimeClassName": "kata", "overhead": {"cpu": "250m"}}, "Deny", []),
        ({"runtimeClassName": "kata", "overhead": {"cpu": "250m"}}, "Keep", []),
        (
            {"runtimeClassName": "kata", "overhead": {"cpu": "250m"}},
            "Override",
            [("replace", "/spec/runtimeClassName"), ("remove", "/spec/overhead")],
        ),
    ],
)
def test_runtime_class_by_conflict_rule_and_its_overhead_is_removed(spec: Json, rule: str, expected: list[Any]) -> None:
    found = list_operations(pod(**spec), runtimeClassName="gvisor", onConflict={"runtimeClassName": rule})
    assert [(operation["op"], operation["path"]) for operation in found] == expected
