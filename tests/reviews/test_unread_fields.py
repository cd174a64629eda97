"""managedFields hold what their writer likes: nesting beyond each decoder, and what is no Unicode.

An API server stores both (tests/cluster/test_bypass_attempts.py). They change no decision, and end none.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.core.admission.workloads import request, template
from tests.core.reviewing import Gate, body, pod, policy_of
from tests.harness.unread_values import UNREAD
from tests.reviews.review_cases import CASES, POLICIES, answer_review, case_id
from webhook.core.admission.decision import Half

PLACE = b'"<fields>"'
POLICY = """
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  placement: {schedulerName: podgate-scheduler}
"""


def write_fields(document: Any) -> bytes | None:
    """Return a review whose objects have managedFields with a place to fill; None if it has no object."""
    request = document.get("request") if isinstance(document, dict) else None
    objects = [request.get(name) for name in ("object", "oldObject")] if isinstance(request, dict) else []
    written = [found for found in objects if isinstance(found, dict) and isinstance(found.get("metadata"), dict)]
    for found in written:
        found["metadata"]["managedFields"] = [{"manager": "anybody", "fieldsV1": "<fields>"}]
    return msgspec.json.encode(document) if written else None


def read_case(case: Path) -> bytes | None:
    return write_fields(msgspec.json.decode((case / "request.json").read_bytes()))


WITH_OBJECTS = {case: text for case in CASES if case.parent != POLICIES and (text := read_case(case)) is not None}


@pytest.mark.parametrize("unread", UNREAD)
@pytest.mark.parametrize("half", Half)
@pytest.mark.parametrize("case", WITH_OBJECTS, ids=case_id)
async def test_what_nobody_reads_changes_no_response(case: Path, half: Half, unread: str) -> None:
    text = WITH_OBJECTS[case]
    usual = await answer_review(case, half, text.replace(PLACE, b"{}"))
    assert await answer_review(case, half, text.replace(PLACE, UNREAD[unread])) == usual


@pytest.mark.parametrize("unread", UNREAD)
@pytest.mark.parametrize(
    ("group", "resource"), [("apps", "deployments"), ("batch", "cronjobs"), ("argoproj.io", "rollouts")]
)
async def test_a_workload_is_warned_of_whatever_nobody_reads_of_it(group: str, resource: str, unread: str) -> None:
    asked = request(template(schedulerName="theirs"), group, resource)
    asked["object"] |= {"apiVersion": f"{group}/v1", "kind": resource.removesuffix("s").capitalize()}
    written = [asked["object"]["metadata"], asked["object"]["spec"].get("template", {}).get("metadata", {})]
    for metadata in written:
        metadata["managedFields"] = [{"manager": "anybody", "fieldsV1": "<fields>"}]
    gate = Gate(policy_of(POLICY))
    answer = await gate.interceptor.review(Half.VALIDATE, body(**asked).replace(PLACE, UNREAD[unread]))
    [warning] = answer.decision.warnings
    assert "spec.schedulerName is 'theirs'" in warning


@pytest.mark.parametrize("text", [b"their\xff", rb"their\ud800"])
async def test_text_that_is_no_unicode_is_judged_as_the_api_server_reads_it(text: bytes) -> None:
    sent = body(object=pod({"app": "web"}, uid="u", schedulerName="<text>")).replace(b"<text>", text)
    decision = (await Gate(policy_of(POLICY)).interceptor.review(Half.VALIDATE, sent)).decision
    assert not decision.allowed
    assert "their\ufffd" in str(decision.status)
