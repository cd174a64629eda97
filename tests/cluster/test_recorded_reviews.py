"""The golden inputs of tests/reviews compared with the reviews that the API server sends in one scenario.

`pytest tests/cluster/test_recorded_reviews.py --refresh-goldens` records them; `pytest tests/reviews --refresh-goldens`
then writes the responses: read both differences.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.recording.placeholders import normalize
from tests.cluster.recording.scenario import STEPS, Step, record
from tests.cluster.recording.webhooks import POLICY_PATH
from tests.cluster.recording_webhook import Call

GOLDENS = Path(__file__).parents[1] / "reviews"
RECORDED, POLICIES = GOLDENS / "recorded", GOLDENS / "policies"
Recording = dict[str, dict[str, Call]]


@pytest.fixture(scope="module")
def recording(plane: ControlPlane, identities: Identities) -> Recording:
    return record(plane, identities.files, (RECORDED / "policy.yaml").read_bytes())


def cases(name: str, calls: dict[str, Call]) -> dict[Path, dict[str, Any]]:
    """Return the folder of each review of a step: one for both webhooks if their reviews are equal."""
    reviews = {path: normalize(call.review) for path, call in calls.items()}
    if POLICY_PATH in reviews:
        return {POLICIES / name: reviews[POLICY_PATH]}
    if reviews["mutate"] == reviews["validate"]:
        return {RECORDED / name: reviews["mutate"]}
    return {RECORDED / f"{name}_{half}": review for half, review in reviews.items()}


def find_stored(step: Step) -> set[Path]:
    names = (step.name, f"{step.name}_mutate", f"{step.name}_validate")
    return {folder / name for folder in (RECORDED, POLICIES) for name in names if (folder / name).is_dir()}


def write_goldens(reviews: dict[Path, dict[str, Any]], before: set[Path]) -> None:
    for case in before - reviews.keys():
        shutil.rmtree(case)
    for case, review in reviews.items():
        case.mkdir(parents=True, exist_ok=True)
        (case / "request.json").write_text(json.dumps(review, indent=2) + "\n")


def differences(golden: Any, sent: Any, path_so_far: str = "") -> Iterator[str]:
    """Yield the differing fields with both values."""
    if isinstance(golden, dict) and isinstance(sent, dict):
        for key in sorted(golden.keys() | sent.keys()):
            field_path = f"{path_so_far}.{key}" if path_so_far else key
            if key not in sent:
                yield f"{field_path}: {json.dumps(golden[key])} is stored, and no longer sent"
            elif key not in golden:
                yield f"{field_path}: {json.dumps(sent[key])} is sent, and not stored"
            else:
                yield from differences(golden[key], sent[key], field_path)
    elif isinstance(golden, list) and isinstance(sent, list) and len(golden) == len(sent):
        for index, (one, other) in enumerate(zip(golden, sent, strict=True)):
            yield from differences(one, other, f"{path_so_far}[{index}]")
    elif golden != sent:
        yield f"{path_so_far}: {json.dumps(golden)} is stored, {json.dumps(sent)} is sent"


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_recorded_reviews_match_the_api_server(
    step: Step,
    recording: Recording,
    refresh_goldens: bool,  # noqa: FBT001  a fixture
) -> None:
    reviews = cases(step.name, recording[step.name])
    if refresh_goldens:
        write_goldens(reviews, find_stored(step))
    assert sorted(find_stored(step)) == sorted(reviews)
    differing = [
        f"{case.name}: {line}"
        for case, review in reviews.items()
        for line in differences(json.loads((case / "request.json").read_text()), review)
    ]
    assert not differing, "\n".join(["what the API server sends has changed:", *differing])


def test_no_recorded_review_is_stale(recording: Recording) -> None:
    reviews = {case for name, calls in recording.items() for case in cases(name, calls)}
    assert {path.parent for folder in (RECORDED, POLICIES) for path in folder.glob("*/request.json")} == reviews


def test_no_two_calls_have_the_same_uid(recording: Recording) -> None:
    """The golden inputs have placeholders instead. Both calls for one Pod have different UIDs."""
    uids = [call.request["uid"] for calls in recording.values() for call in calls.values()]
    assert len(set(uids)) == len(uids)
