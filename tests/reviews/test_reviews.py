"""Golden pairs: POLICY/CASE/request.json as a kube-apiserver sends it, with the responses of both webhooks.

Both webhooks review every request; neither may fail on a request meant for the other. `error` stands for a 4xx.
The requests in policies/ concern the policy itself and need none. Those and recorded/ come from a real API server
(tests/cluster/test_recorded_reviews.py). The files of fields/ are about one field of a policy each. The other folders
have other policies, or requests that only a fault sends.
`pytest tests/reviews --refresh-goldens` rewrites every response.json: read the difference.
"""

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.core.reviewing import Gate
from tests.reviews.golden import compare
from webhook.core.admission.decision import Half
from webhook.core.document import Purpose, load
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.policy_changes.policy_review import judge

HERE = Path(__file__).parent
POLICIES = HERE / "policies"
FIELDS = HERE / "fields"
"""One file for each field of `placement` and `resources`, with a case for each kind of Pod."""
CASES = sorted(path.parent for path in HERE.glob("*/*/request.json"))


def case_id(case: Path) -> str:
    return f"{case.parent.name}/{case.name}"


async def read_responses(case: Path) -> dict[str, dict[str, Any]]:
    """Return the response of each path that receives such a request."""
    body = (case / "request.json").read_bytes()
    if case.parent == POLICIES:
        return {"validate-policy": decode_response(judge(body).body)}
    return {half.value: await answer_review(case, half, body) for half in Half}


async def answer_review(case: Path, half: Half, body: bytes) -> dict[str, Any]:
    gate = Gate(load((case.parent / "policy.yaml").read_bytes(), Purpose.SERVE).policy)
    try:
        answer = await gate.interceptor.review(half, body)
    except BadReviewError as error:
        return {"error": str(error)}
    return decode_response(answer.body)


def decode_response(body: bytes) -> dict[str, Any]:
    review: dict[str, Any] = msgspec.json.decode(body)
    assert (review.pop("apiVersion"), review.pop("kind")) == ("admission.k8s.io/v1", "AdmissionReview")
    response: dict[str, Any] = review.pop("response")
    assert review == {}
    if "patch" in response:
        response["patch"] = msgspec.json.decode(base64.b64decode(response["patch"], validate=True))
    return response


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
