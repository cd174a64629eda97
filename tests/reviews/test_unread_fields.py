"""managedFields hold what their writer likes: nesting beyond each decoder, and bytes that are not UTF-8.

An API server stores both (tests/cluster/test_bypass_attempts.py). They change no decision, and end none.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.harness.nesting import nest
from tests.reviews.review_cases import CASES, POLICIES, answer_review, case_id
from webhook.core.admission.decision import Half

PLACE = b'"<fields>"'
UNREAD = {
    "deep": nest(5_000, '{"f:a":', "}").encode(),
    "no UTF-8": b'{"f:\xff\xfe":{}}',
    "no UTF-8 in the spec": b'{"f:spec":{"f:\xff":{}}}',
}


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
