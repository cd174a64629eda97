"""Overrides documents: each file in `bad/` is named after its error, and its `.expected` has the reported lines.

REFRESH_EXPECTED=1 rewrites the `.expected` files: read the changes before you commit them.
"""

import os
from pathlib import Path

import pytest

from webhook.core.document import DocumentError
from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.core.overrides import Grant, ManualBreakerState, Override, PartialModes, QuotaReset, decode_entries
from webhook.core.overrides.editing import encode_document
from webhook.core.overrides.entry import encode_entries
from webhook.core.overrides.loading import OVERRIDES_BYTES_MAX, OverridesDocument, load
from webhook.core.policy_fields import Mode

HERE = Path(__file__).parent
BAD = sorted((HERE / "bad").glob("*.yaml"))
END_US = 1_796_097_600_000_000
WHOLE = """\
- service: payment-api
  quotaFactor: 1.5
  modes: {quota: Audit, breaker: Disabled}
  grant: [{window: 1m, hard: {pods: 100, cpu: 500m}}]
  quotaReset: {at: 2026-12-01T03:00:00Z, window: 1m}
  breaker: ForcedClosed
  resetAt: 2026-12-01T03:00:00Z
  until: 2026-12-01T04:00:00Z
  reason: INC-1
"""


def entry(service: str = "a", until: str = "2026-12-01T04:00:00Z") -> str:
    return f"- {{service: {service}, quotaFactor: 2, until: {until}, reason: INC-1}}\n"


def list_problems(raw: bytes) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        load(raw)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("document", BAD, ids=lambda path: path.stem)
def test_invalid_document_is_reported_with_exactly_the_expected_lines(document: Path) -> None:
    found = list_problems(document.read_bytes())
    expectation = document.with_suffix(".expected")
    if os.environ.get("REFRESH_EXPECTED") == "1":
        expectation.write_text("".join(f"{line}\n" for line in found))
    assert found == expectation.read_text().splitlines()


def test_every_field_of_an_entry_is_loaded() -> None:
    minute = Duration.parse("1m")
    assert load(WHOLE.encode()).entries == (
        Override(
            service="payment-api",
            until="2026-12-01T04:00:00Z",
            reason="INC-1",
            quota_factor=Quantity.parse("1.5"),
            modes=PartialModes(quota=Mode.AUDIT, breaker=Mode.DISABLED),
            grant=(Grant(minute, {"pods": Quantity.parse("100"), "cpu": Quantity.parse("0.5")}),),
            quota_reset=QuotaReset("2026-12-01T03:00:00Z", minute),
            breaker=ManualBreakerState.FORCED_CLOSED,
            reset_at="2026-12-01T03:00:00Z",
        ),
    )


@pytest.mark.parametrize("text", ["", "# nothing\n", "[]\n", "null\n", "---\n"])
def test_empty_document_has_no_overrides(text: str) -> None:
    assert load(text.encode()) == OverridesDocument()


@pytest.mark.parametrize(
    "until", ["2026-12-01T04:00:00Z", "2026-12-01T05:00:00+01:00", "2026-12-01T04:00:00.000Z", "'2026-12-01T04:00:00Z'"]
)
def test_until_may_be_in_any_time_zone(until: str) -> None:
    [found] = load(entry(until=until).encode()).entries
    assert found.until_us == END_US


def test_entry_is_live_until_its_end() -> None:
    document = load(entry().encode())
    assert list(document.list_live(END_US - 1)) == ["a"]
    assert document.list_live(END_US) == {}
    assert document.find_next_end_us(END_US - 1) == END_US
    assert document.find_next_end_us(END_US) is None


def test_two_live_entries_for_one_service_clash_until_one_of_them_ends() -> None:
    document = load((entry() + entry("b") + entry(until="2026-12-01T05:00:00Z")).encode())
    [clash] = document.find_clashes(END_US - 1)
    assert str(clash) == (
        "3:13: [2].service: a: a second live entry for a sets quotaFactor, first in line 1:"
        " keep one of the two, or put both into one"
    )
    assert document.find_clashes(END_US) == ()
    assert {name: found.until for name, [found] in document.list_live(END_US).items()} == {"a": "2026-12-01T05:00:00Z"}


def test_entries_of_one_service_with_different_fields_are_live_together() -> None:
    live = [
        "grant: [{window: 1m, hard: {pods: 1}}]",
        "grant: [{window: 1m, hard: {cpu: 1}}, {window: 1h, hard: {pods: 1}}]",
        "quotaReset: {at: 2026-12-01T03:00:00Z}",
        "resetAt: 2026-12-01T03:00:00Z",
        "breaker: Automatic",
        "modes: {quota: Audit}",
        "modes: {breaker: Warn}, quotaFactor: 2",
    ]
    tail = "until: 2026-12-01T04:00:00Z, reason: INC-1, by: alice"
    text = "".join(f"- {{service: a, {body}, {tail}}}\n" for body in live)
    document = load(text.encode())
    assert document.find_clashes(END_US - 1) == ()
    assert len(document.list_live(END_US - 1)["a"]) == len(live)
    for body, field in (
        ("grant: [{window: 60s, hard: {requests.cpu: 1}}]", "grant of requests.cpu in 60s"),
        ("quotaReset: {at: 2026-12-01T03:30:00Z}", "quotaReset"),
        ("modes: {breaker: Audit}", "modes.breaker"),
    ):
        [clash] = load(f"{text}- {{service: a, {body}, {tail}}}\n".encode()).find_clashes(END_US - 1)
        assert f"sets {field}, first in line" in clash.reason


def test_expired_entry_does_not_clash_with_a_live_one() -> None:
    document = load((entry(until="2020-01-01T00:00:00Z") + entry()).encode())
    assert document.find_clashes(END_US - 1) == ()


def test_document_above_the_size_limit_is_rejected_unparsed() -> None:
    [problem] = list_problems(b"- " * (OVERRIDES_BYTES_MAX // 2) + b"x")
    assert "the overrides hold at most 262144 (256 KiB): remove what has expired" in problem


def test_document_holds_at_most_a_thousand_entries() -> None:
    thousand = "".join(entry(f"s{number}") for number in range(1000))
    assert len(load(thousand.encode()).entries) == 1000
    [problem] = list_problems((thousand + entry("one-more")).encode())
    assert problem.endswith("longer than 1000: shorten it")


EXCEPTION = "workload: {namespace: shop, kind: Deployment, name: web}"
SELECTED = "pods: {namespace: shop, selector: {matchLabels: {app: web}}}"


def write(*bodies: str) -> bytes:
    tail = "until: 2026-12-01T04:00:00Z, reason: INC-1"
    return "".join(f"- {{service: a, {body}, {tail}}}\n" for body in bodies).encode()


def test_an_exception_keeps_its_target_when_it_is_written_again() -> None:
    for target in (EXCEPTION, SELECTED):
        [found] = load(write(f"{target}, quotaFactor: 2")).entries
        assert load(encode_document([found])).entries == (found,)
        assert decode_entries(encode_entries([found]).encode()) == (found,)
    assert str(found).startswith("pods: {namespace: shop, selector: {matchLabels: {app: web}}}, quotaFactor: 2 until ")


def test_entries_of_other_targets_do_not_clash_and_of_the_same_target_do() -> None:
    other = EXCEPTION.replace("name: web", "name: api")
    apart = write("quotaFactor: 2", *(f"{target}, quotaFactor: 2" for target in (EXCEPTION, other, SELECTED)))
    assert load(apart).find_clashes(END_US - 1) == ()
    assert load(write(f"{EXCEPTION}, quotaFactor: 2", f"{EXCEPTION}, modes: {{quota: Audit}}")).find_clashes(0) == ()
    document = load(write(f"{EXCEPTION}, quotaFactor: 2", f"{EXCEPTION}, quotaFactor: 3"))
    [clash] = document.find_clashes(END_US - 1)
    assert str(clash) == (
        "2:13: [1].service: a: a second live entry for these Pods of a sets quotaFactor, first in line 1:"
        " keep one of the two, or put both into one"
    )
    assert document.find_clashes(END_US) == ()


def test_an_entry_with_a_target_of_a_later_version_is_refused_and_never_applied_to_the_whole_service() -> None:
    """So a server that is older than exceptions refuses a document with one, and keeps the former document."""
    [problem] = list_problems(write("vip: {namespace: shop}, quotaFactor: 2"))
    assert "vip: {...}: unknown field" in problem
