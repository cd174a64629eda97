"""Golden pairs: a Pod for one field, its rewrite, and the validating half's findings.

`pytest tests/reviews --refresh-goldens` writes every golden part again: read the difference.
"""

from functools import partial
from pathlib import Path

import pytest

from tests.reviews.fields.case_review import gate_of, outcome, pod_of, rewritten
from tests.reviews.fields.cases import FILES, Golden, Row, path_of, refresh, rows
from tests.reviews.golden import compare

each_file = pytest.mark.parametrize("file", FILES, ids=path_of)


def written(file: Path) -> dict[str, Golden | None]:
    return {row.case.name: row.written for row in rows(file)}


def readable(file: Path) -> list[Row]:
    return [row for row in rows(file) if row.written is not None and not row.written.refused]


@each_file
async def test_every_outcome_equals_its_golden_part(file: Path, refresh_goldens: bool) -> None:  # noqa: FBT001  a fixture
    found = {row.case.name: await outcome(row.case, row.stanzas) for row in rows(file)}
    compare(found, lambda: written(file), partial(refresh, file), refresh=refresh_goldens)


@each_file
async def test_second_rewrite_changes_nothing(file: Path) -> None:
    for row in readable(file):
        gate = gate_of(row.stanzas, row.case.namespace)
        once = await rewritten(gate, pod_of(row.case))
        assert await rewritten(gate, once) == once, row.case.name


@each_file
async def test_metadata_gets_only_what_the_outcome_shows_and_the_label_and_annotation_of_podgate(file: Path) -> None:
    for row in readable(file):
        gate, pod = gate_of(row.stanzas, row.case.namespace), pod_of(row.case)
        ours = {"labels": {"podgate.io/service": "web"}, "annotations": {"podgate.io/policy-hash": gate.loaded.hash}}
        written = row.written.metadata if row.written is not None else {}
        described = {
            kind: (pod["metadata"].get(kind) or {}) | own | written.get(kind, {}) for kind, own in ours.items()
        }
        after = await rewritten(gate, pod)
        assert after == pod | {"metadata": pod["metadata"] | {"namespace": "shop"} | described, "spec": after["spec"]}
