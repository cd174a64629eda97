"""The complete example is valid as a whole; its only problems are "not supported yet"."""

from pathlib import Path

import pytest

from webhook.core.document import DocumentError, Purpose, load

EXAMPLE = Path(__file__).parent / "complete_example.yaml"

UNSUPPORTED = {"services[0].quota.queue"}


@pytest.mark.parametrize("purpose", [Purpose.LINT, Purpose.REVIEW, Purpose.SERVE])
def test_complete_example_is_refused_for_unsupported_stanzas_only(purpose: Purpose) -> None:
    with pytest.raises(DocumentError) as caught:
        load(EXAMPLE.read_bytes(), purpose)
    assert {problem.path for problem in caught.value.problems} == UNSUPPORTED
    assert all(problem.reason.startswith("not supported yet") for problem in caught.value.problems)


def test_complete_example_can_be_replayed() -> None:
    assert load(EXAMPLE.read_bytes(), Purpose.REPLAY).policy.policy.services


def test_complete_example_contains_empty_stanzas() -> None:
    text = EXAMPLE.read_text()
    assert "affinity: {}" in text
    assert "topologySpreadConstraints: []" in text
