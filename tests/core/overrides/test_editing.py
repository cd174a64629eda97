"""Edits of overrides: one entry per service, others kept, expired ones removed, and equal when read again."""

from hypothesis import given
from hypothesis import strategies as st

from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.core.overrides import Grant, ManualBreakerState, Override, PartialModes, QuotaReset, merge
from webhook.core.overrides.editing import drop_replaced, encode_document, replace_entries
from webhook.core.overrides.loading import load
from webhook.core.policy_fields import Mode

EARLY, LATE = "2026-12-01T04:00:00Z", "2026-12-01T05:00:00Z"
EARLY_US = 1_796_097_600_000_000
TWICE = Override("a", EARLY, "INC-1", quota_factor=Quantity.parse("2"))
OTHER = Override("b", LATE, "INC-2", modes=PartialModes(quota=Mode.AUDIT))
WINDOWS = st.sampled_from(["1s", "1m", "1h30m"]).map(Duration.parse)
HARD = st.dictionaries(st.sampled_from(["pods", "cpu"]), st.integers(0, 99).map(str).map(Quantity.parse), min_size=1)
ENTRIES = st.builds(
    Override,
    service=st.sampled_from(["a", "no", "1e3"]),
    until=st.sampled_from([EARLY, "2026-12-01T04:00:00.5+02:00"]),
    reason=st.text(st.characters(categories=("L", "N", "P", "Zs")), min_size=1, max_size=40).filter(str.strip),
    quota_factor=st.sampled_from(["3", "0.1", "1.123456789"]).map(Quantity.parse),
    modes=st.none() | st.builds(PartialModes, quota=st.sampled_from(Mode)),
    grant=st.lists(st.builds(Grant, WINDOWS, HARD), max_size=3, unique_by=lambda grant: grant.window).map(tuple),
    quota_reset=st.none() | st.builds(QuotaReset, st.just(EARLY), st.none() | WINDOWS),
    breaker=st.none() | st.sampled_from(ManualBreakerState),
    reset_at=st.none() | st.just(EARLY),
)


def grant(window: str, **hard: str) -> Grant:
    return Grant(Duration.parse(window), {name: Quantity.parse(text) for name, text in hard.items()})


@given(ENTRIES)
def test_written_overrides_are_read_back_equal(entry: Override) -> None:
    if entry.reason.isprintable():
        assert load(encode_document([entry])).entries == (entry,)


def test_entries_replace_those_of_their_service_and_expired_ones_are_removed() -> None:
    new = Override("a", LATE, "INC-3", quota_factor=Quantity.parse("3"))
    assert replace_entries([TWICE, OTHER], "a", [new], EARLY_US - 1) == (OTHER, new)
    assert replace_entries([TWICE], "b", [OTHER], EARLY_US - 1) == (TWICE, OTHER)
    assert replace_entries([TWICE], "b", [OTHER], EARLY_US) == (OTHER,)


def test_newer_breaker_state_and_reset_replace_only_the_former_ones() -> None:
    forced = merge(TWICE, Override("a", LATE, "INC-1", breaker=ManualBreakerState.FORCED_OPEN))
    reset = Override("a", LATE, "INC-2", quota_reset=QuotaReset(EARLY))
    automatic = Override("a", LATE, "INC-3", breaker=ManualBreakerState.AUTOMATIC, reset_at=LATE)
    assert drop_replaced([forced, reset], automatic) == (merge(TWICE, Override("a", LATE, "INC-1")), reset)
    assert drop_replaced([reset], Override("a", LATE, "INC-4", quota_reset=QuotaReset(LATE))) == ()
    assert drop_replaced([reset], Override("a", LATE, "INC-4", quota_reset=QuotaReset(LATE, Duration.parse("1m")))) == (
        reset,
    )
    assert drop_replaced([TWICE], TWICE) == (TWICE,)


def test_clearing_removes_the_entries_of_one_service_only() -> None:
    assert replace_entries([TWICE, OTHER], "a", (), EARLY_US - 1) == (OTHER,)
    assert replace_entries([TWICE, OTHER], "c", (), EARLY_US - 1) == (TWICE, OTHER)


def test_merge_keeps_other_fields_and_takes_the_new_end_and_reason() -> None:
    both = merge(TWICE, Override("a", LATE, "INC-9", modes=PartialModes(quota=Mode.AUDIT)))
    assert both == Override("a", LATE, "INC-9", quota_factor=Quantity.parse("2"), modes=PartialModes(quota=Mode.AUDIT))
    again = merge(both, Override("a", EARLY, "INC-10", modes=PartialModes(breaker=Mode.WARN)))
    assert again.modes == PartialModes(quota=Mode.AUDIT, breaker=Mode.WARN)


def test_merged_grant_replaces_only_that_of_the_same_resource() -> None:
    former = Override("a", EARLY, "INC-1", grant=(grant("1m", pods="10", cpu="1"), grant("1h", pods="1")))
    new = Override("a", EARLY, "INC-2", grant=(Grant(Duration.parse("60s"), {"requests.cpu": Quantity.parse("2")}),))
    first, second = merge(former, new).grant
    assert first == Grant(Duration.parse("1m"), {"pods": Quantity.parse("10"), "requests.cpu": Quantity.parse("2")})
    assert second == grant("1h", pods="1")


def test_merged_quota_reset_replaces_the_former() -> None:
    former = Override("a", EARLY, "INC-1", quota_reset=QuotaReset(EARLY))
    assert merge(former, TWICE).quota_reset == QuotaReset(EARLY)
    assert merge(former, Override("a", EARLY, "x", quota_reset=QuotaReset(LATE))).quota_reset == QuotaReset(LATE)


def test_merged_breaker_state_replaces_the_former_one() -> None:
    opened = Override("a", EARLY, "INC-1", breaker=ManualBreakerState.FORCED_OPEN, reset_at=EARLY)
    assert merge(opened, TWICE).breaker is ManualBreakerState.FORCED_OPEN
    closed = merge(opened, Override("a", EARLY, "x", breaker=ManualBreakerState.FORCED_CLOSED))
    assert (closed.breaker, closed.reset_at) == (ManualBreakerState.FORCED_CLOSED, EARLY)
    released = merge(closed, Override("a", EARLY, "x", breaker=ManualBreakerState.AUTOMATIC, reset_at=LATE))
    assert (released.breaker, released.reset_at) == (ManualBreakerState.AUTOMATIC, LATE)
