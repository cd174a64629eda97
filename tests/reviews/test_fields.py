"""Golden pairs: a Pod for one field, its rewrite, and the validating half's findings.

`pytest tests/reviews --refresh-goldens` writes every golden part again: read the difference.
"""

from functools import partial
from pathlib import Path

import pytest

from tests.reviews.fields.case_review import find_outcome, gate_of, pod_of, rewrite_pod
from tests.reviews.fields.cases import FILES, Golden, Row, find_policy_path, read_rows, refresh
from tests.reviews.golden import compare

each_file = pytest.mark.parametrize("file", FILES, ids=find_policy_path)


def written(file: Path) -> dict[str, Golden | None]:
    return {row.case.name: row.written for row in read_rows(file)}


def select_readable(file: Path) -> list[Row]:
    return [row for row in read_rows(file) if row.written is not None and not row.written.refused]


@each_file
async def test_every_outcome_equals_its_golden_part(file: Path, refresh_goldens: bool) -> None:  # noqa: FBT001  a fixture
    found = {row.case.name: await find_outcome(row.case, row.stanzas) for row in read_rows(file)}
    compare(found, lambda: written(file), partial(refresh, file), refresh=refresh_goldens)


@each_file
async def test_second_rewrite_changes_nothing(file: Path) -> None:
    for row in select_readable(file):
        gate = gate_of(row.stanzas, row.case.namespace)
        once = await rewrite_pod(gate, pod_of(row.case))
        assert await rewrite_pod(gate, once) == once, row.case.name


@each_file
async def test_metadata_gets_only_what_the_outcome_shows_and_the_label_and_annotation_of_podgate(file: Path) -> None:
    for row in select_readable(file):
        gate, pod = gate_of(row.stanzas, row.case.namespace), pod_of(row.case)
        ours = {"labels": {"podgate.io/service": "web"}, "annotations": {"podgate.io/policy-hash": gate.loaded.hash}}
        written = row.written.metadata if row.written is not None else {}
        described = {
            kind: (pod["metadata"].get(kind) or {}) | own | written.get(kind, {}) for kind, own in ours.items()
        }
        after = await rewrite_pod(gate, pod)
        assert after == pod | {"metadata": pod["metadata"] | {"namespace": "shop"} | described, "spec": after["spec"]}
