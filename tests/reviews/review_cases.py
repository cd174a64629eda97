"""The cases of golden reviews: requests in files, and the responses that an interceptor gives."""

import base64
from pathlib import Path
from typing import Any

import msgspec

from tests.core.reviewing import Gate
from webhook.core.admission.decision import Half
from webhook.core.document import Purpose, load
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.policy_changes.policy_review import judge

HERE = Path(__file__).parent
POLICIES = HERE / "policies"
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
