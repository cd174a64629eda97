"""Completeness: a file for every field of a policy, every kind of Pod in each, an outcome for each."""

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec import Struct

from tests.fields.cases import FILES, HERE, NEEDED, Golden, Row, path_of, rows
from webhook.core.kubernetes.types import Affinity, NodeAffinity, PodAffinity
from webhook.core.policy_spec import (
    ConflictRules,
    ContainerRange,
    OnConflict,
    Placement,
    PodRange,
    ResourceRules,
    WhenOutside,
)

OPENED = (Placement, Affinity, NodeAffinity, PodAffinity, ConflictRules, ResourceRules, ContainerRange, PodRange)
"""Types whose fields are looked at one by one. Any other is one field, however much is in it."""
IN_TWO = {"placement.topology": ("placement.topology.preferred", "placement.topology.required")}
"""A field that means two things, each with a file of its own."""

each_file = pytest.mark.parametrize("file", FILES, ids=path_of)


def fields(owner: type[Struct], path: str) -> Iterator[str]:
    """Yield the path of every field, in the words of a policy."""
    for field in msgspec.structs.fields(owner):
        name = field.encode_name.removesuffix("DuringSchedulingIgnoredDuringExecution")
        choices: tuple[Any, ...] = get_args(field.type) if isinstance(field.type, types.UnionType) else (field.type,)
        inner = next((choice for choice in choices if choice in OPENED), None)
        yield from (f"{path}.{name}",) if inner is None else fields(inner, f"{path}.{name}")


def of_kind(file: Path, *kinds: str) -> Iterator[Row]:
    return (row for row in rows(file) if row.case.kind in kinds)


def test_every_field_of_the_policy_has_its_file_and_no_file_is_left_over() -> None:
    named = {*fields(Placement, "placement"), *fields(ResourceRules, "resources")}
    assert {path_of(file) for file in FILES} == {path for name in named for path in IN_TWO.get(name, (name,))}
    others = {path for path in HERE.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"}}
    assert others == set(FILES)


@each_file
def test_every_kind_of_pod_is_there(file: Path) -> None:
    assert NEEDED - {row.case.kind for row in rows(file)} == set()


@each_file
def test_every_case_has_a_name_of_its_own_and_an_outcome(file: Path) -> None:
    names = [row.case.name for row in rows(file)]
    assert len(set(names)) == len(names)
    assert [row.case.name for row in rows(file) if row.written is None] == []


@each_file
def test_an_oddity_says_in_one_line_why_it_is_one(file: Path) -> None:
    for row in of_kind(file, "oddity"):
        assert row.case.why.strip(), row.case.name
        assert "\n" not in row.case.why, row.case.name


@each_file
def test_what_is_equal_is_left_as_it_is_and_admitted_in_silence(file: Path) -> None:
    assert {row.case.name: row.written for row in of_kind(file, "equal")} == {
        row.case.name: Golden("unchanged", "Admit") for row in of_kind(file, "equal")
    }


@each_file
def test_what_is_absent_or_compatible_is_admitted_in_silence(file: Path) -> None:
    for row in of_kind(file, "absent", "compatible"):
        assert row.written is not None
        assert row.written == Golden(row.written.becomes, "Admit"), row.case.name


@each_file
def test_what_was_undone_was_touched_by_another_client(file: Path) -> None:
    assert [row.case.name for row in rows(file) if (row.case.kind == "undone") and not row.case.meanwhile] == []


@pytest.mark.parametrize("file", [file for file in FILES if file.name.startswith("onConflict.")], ids=path_of)
def test_a_conflict_is_shown_under_each_rule(file: Path) -> None:
    field = file.stem.removeprefix("onConflict.")
    rules = [row.stanzas["placement"].get("onConflict", {}) for row in of_kind(file, "contradicting")]
    assert {rule.get(field, "Deny") for rule in rules} == set(OnConflict)


def test_what_is_outside_is_shown_under_each_rule() -> None:
    found = of_kind(HERE / "resources/whenOutside.yaml", "contradicting")
    assert {row.stanzas["resources"]["whenOutside"] for row in found} == set(WhenOutside)
