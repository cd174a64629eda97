"""The complete example is valid as a whole; its only remarks are "not supported yet"."""

from pathlib import Path

import pytest

from webhook.core.document import DocumentError, Purpose, load

EXAMPLE = Path(__file__).parent / "complete_example.yaml"

NOBODY_ACTS_ON = {"services[0].quota.queue"}


@pytest.mark.parametrize("purpose", [Purpose.LINT, Purpose.REPLAY, Purpose.REVIEW, Purpose.SERVE])
def test_it_is_refused_for_exactly_the_stanzas_that_are_not_supported_yet(purpose: Purpose) -> None:
    with pytest.raises(DocumentError) as caught:
        load(EXAMPLE.read_bytes(), purpose)
    assert {problem.path for problem in caught.value.problems} == NOBODY_ACTS_ON
    assert all(problem.reason.startswith("not supported yet") for problem in caught.value.problems)


def test_empty_stanzas_are_no_objection() -> None:
    text = EXAMPLE.read_text()
    assert "affinity: {}" in text
    assert "topologySpreadConstraints: []" in text
