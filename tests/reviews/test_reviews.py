"""Golden pairs: POLICY/CASE/request.json as a kube-apiserver sends it, with the responses of both webhooks.

Both webhooks review every request; neither may fail on a request meant for the other. `error` stands for a 4xx.
The requests in policies/ concern the policy itself and need none. Those and recorded/ come from a real API server
(tests/cluster/test_recorded_reviews.py). The files of fields/ are about one field of a policy each. The other folders
have other policies, or requests that only a fault sends.
`pytest tests/reviews --refresh-goldens` rewrites every response.json: read the difference.
"""

from pathlib import Path

import msgspec
import pytest

from tests.reviews.golden import compare
from tests.reviews.review_cases import CASES, HERE, POLICIES, case_id, read_responses

FIELDS = HERE / "fields"
"""One file for each field of `placement` and `resources`, with a case for each kind of Pod."""


@pytest.mark.parametrize("case", CASES, ids=case_id)
async def test_every_response_equals_its_golden_file(case: Path, refresh_goldens: bool) -> None:  # noqa: FBT001  a fixture
    written = case / "response.json"
    compare(
        await read_responses(case),
        lambda: msgspec.json.decode(written.read_bytes()),
        lambda found: written.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"),
        refresh=refresh_goldens,
    )


def test_folder_has_exactly_the_expected_files() -> None:
    assert {case.parent for case in CASES} >= {HERE / "recorded", POLICIES}
    expected = {case.parent / "policy.yaml" for case in CASES if case.parent != POLICIES}
    expected |= {case / name for case in CASES for name in ("request.json", "response.json")}
    found = {path for path in HERE.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"}}
    found -= set(FIELDS.rglob("*"))
    assert found == expected


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_golden_response_has_the_shape_that_an_api_server_accepts(case: Path) -> None:
    """These hold for every response, also after a refresh."""
    uid = msgspec.json.decode((case / "request.json").read_bytes())["request"]["uid"]
    written = msgspec.json.decode((case / "response.json").read_bytes())
    for path, response in written.items():
        if "error" in response:
            continue
        assert response["uid"] == uid
        assert ("patch" in response) == (response.get("patchType") == "JSONPatch") == ("patchType" in response)
        assert path == "mutate" or "patch" not in response
        assert path != "mutate" or response["allowed"] is True
        assert response["allowed"] or response["status"]["code"] >= 400
