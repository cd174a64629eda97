"""Completeness: a file for every field of a policy, every kind of Pod in each, an outcome for each."""

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec import Struct

from tests.reviews.fields.cases import FILES, HERE, NEEDED, Golden, Row, find_policy_path, read_rows
from webhook.core.kubernetes.types import Affinity, NodeAffinity, PodAffinity
from webhook.core.policy_fields import (
    ConflictRules,
    ContainerRange,
    InitContainerRange,
    OnConflict,
    Placement,
    PodRange,
    ResourceRules,
    WhenOutside,
)

OPENED = (
    *(Placement, Affinity, NodeAffinity, PodAffinity, ConflictRules),
    *(ResourceRules, ContainerRange, InitContainerRange, PodRange),
)
"""Types whose fields are separate. Any other type is one field, whatever its content."""
IN_TWO = {"placement.topology": ("placement.topology.preferred", "placement.topology.required")}
"""A field with two meanings, each with its own file."""
BY_WORKLOAD = {"placement.shares"}
"""Fields that act on the Pods of a workload together: tests/core/shares."""

each_file = pytest.mark.parametrize("file", FILES, ids=find_policy_path)


def list_fields(owner: type[Struct], path: str) -> Iterator[str]:
    """Yield the path of every field, in the words of a policy."""
    for field in msgspec.structs.fields(owner):
        name = field.encode_name.removesuffix("DuringSchedulingIgnoredDuringExecution")
        choices: tuple[Any, ...] = get_args(field.type) if isinstance(field.type, types.UnionType) else (field.type,)
        plain = (getattr(choice, "__origin__", choice) for choice in choices)  # without Annotated
        inner = next((choice for choice in plain if choice in OPENED), None)
        yield from (f"{path}.{name}",) if inner is None else list_fields(inner, f"{path}.{name}")


def select_rows(file: Path, *kinds: str) -> Iterator[Row]:
    return (row for row in read_rows(file) if row.case.kind in kinds)


def test_every_field_of_the_policy_has_exactly_one_file() -> None:
    named = {*list_fields(Placement, "placement"), *list_fields(ResourceRules, "resources")} - BY_WORKLOAD
    assert {find_policy_path(file) for file in FILES} == {path for name in named for path in IN_TWO.get(name, (name,))}
    others = {path for path in HERE.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"}}
    assert others == set(FILES)


@each_file
def test_every_file_has_every_kind_of_pod(file: Path) -> None:
    assert NEEDED - {row.case.kind for row in read_rows(file)} == set()


@each_file
def test_every_case_has_a_unique_name_and_an_outcome(file: Path) -> None:
    names = [row.case.name for row in read_rows(file)]
    assert len(set(names)) == len(names)
    assert [row.case.name for row in read_rows(file) if row.written is None] == []


@each_file
def test_oddity_has_a_reason_of_one_line(file: Path) -> None:
    for row in select_rows(file, "oddity"):
        assert row.case.why.strip(), row.case.name
        assert "\n" not in row.case.why, row.case.name


@each_file
def test_equal_pod_is_unchanged_and_admitted_without_findings(file: Path) -> None:
    assert {row.case.name: row.written for row in select_rows(file, "equal")} == {
        row.case.name: Golden("unchanged", "Admit") for row in select_rows(file, "equal")
    }


@each_file
def test_absent_or_compatible_pod_is_admitted_without_findings(file: Path) -> None:
    for row in select_rows(file, "absent", "compatible"):
        assert row.written is not None
        assert row.written == Golden(row.written.becomes, "Admit", row.written.metadata), row.case.name


@each_file
def test_undone_case_has_a_change_by_another_client(file: Path) -> None:
    assert [row.case.name for row in read_rows(file) if (row.case.kind == "undone") and not row.case.meanwhile] == []


@pytest.mark.parametrize("file", [file for file in FILES if file.name.startswith("onConflict.")], ids=find_policy_path)
def test_conflict_has_a_case_for_each_rule(file: Path) -> None:
    field = file.stem.removeprefix("onConflict.")
    rules = [row.stanzas["placement"].get("onConflict", {}) for row in select_rows(file, "contradicting")]
    assert {rule.get(field, "Deny") for rule in rules} == set(OnConflict)


def test_value_outside_the_range_has_a_case_for_each_rule() -> None:
    found = select_rows(HERE / "resources/whenOutside.yaml", "contradicting")
    assert {row.stanzas["resources"]["whenOutside"] for row in found} == set(WhenOutside)
