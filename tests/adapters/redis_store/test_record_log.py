"""Tests of RecordLog."""

import pytest

from tests.redis_servers.record_log import Call, Charge, RecordLog

_CALLS = [Call(at_us, 50_000, place) for place, at_us in enumerate((1_000_000, 1_002_000, 1_004_000))]


@pytest.mark.parametrize(
    ("charged_us", "is_booked"),
    [
        pytest.param(1_004_000, False, id="by its call"),
        pytest.param(1_004_004, False, id="the time for MONITOR is read first"),
        pytest.param(1_003_953, False, id="Redis did not run between its two readings"),
        pytest.param(1_001_500, True, id="admitted before the call before"),
    ],
)
def test_a_charge_is_booked_if_it_is_older_than_its_call(charged_us: int, *, is_booked: bool) -> None:
    log = RecordLog(0, "")
    log.calls = _CALLS
    assert log.is_booked(Charge("uid-1", charged_us, made_in=2)) is is_booked
