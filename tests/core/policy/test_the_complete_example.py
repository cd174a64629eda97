"""The complete example of the design is valid as a whole, so all that is said of it is "not supported yet"."""

from pathlib import Path

import pytest

from webhook.core.document import DocumentError, Purpose, load

EXAMPLE = Path(__file__).parent / "complete_example.yaml"

NOBODY_ACTS_ON = ("breakerGuard", "services[0].quota.queue")
SERVE_CANNOT_FEED = ("services[0].breaker.outcomes",)


@pytest.mark.parametrize(
    ("purpose", "paths"),
    [
        (Purpose.LINT, NOBODY_ACTS_ON),
        (Purpose.REPLAY, NOBODY_ACTS_ON),
        (Purpose.REVIEW, NOBODY_ACTS_ON),
        (Purpose.SERVE, NOBODY_ACTS_ON + SERVE_CANNOT_FEED),
    ],
)
def test_it_is_refused_for_exactly_the_stanzas_that_are_not_supported_yet(
    purpose: Purpose, paths: tuple[str, ...]
) -> None:
    with pytest.raises(DocumentError) as caught:
        load(EXAMPLE.read_bytes(), purpose)
    assert {problem.path for problem in caught.value.problems} == set(paths)
    assert all(problem.reason.startswith("not supported yet") for problem in caught.value.problems)


def test_empty_stanzas_are_no_objection() -> None:
    text = EXAMPLE.read_text()
    assert "affinity: {}" in text
    assert "topologySpreadConstraints: []" in text
