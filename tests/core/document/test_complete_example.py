"""The complete example is valid, except without a cluster, where it cannot all be in force."""

from pathlib import Path

import pytest

from webhook.core.document import DocumentError, Purpose, load

EXAMPLE = Path(__file__).parent / "complete_example.yaml"


@pytest.mark.parametrize("purpose", [Purpose.LINT, Purpose.REPLAY, Purpose.REVIEW, Purpose.SERVE])
def test_complete_example_is_valid(purpose: Purpose) -> None:
    assert load(EXAMPLE.read_bytes(), purpose).policy.policy.services


def test_complete_example_needs_a_cluster() -> None:
    with pytest.raises(DocumentError) as caught:
        load(EXAMPLE.read_bytes(), Purpose.SERVE_ALONE)
    assert {"services[0].quota.queue"} <= {problem.path for problem in caught.value.problems}


def test_complete_example_contains_empty_stanzas() -> None:
    text = EXAMPLE.read_text()
    assert "affinity: {}" in text
    assert "topologySpreadConstraints: []" in text
