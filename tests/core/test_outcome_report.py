"""Reports of outcomes: parsed strictly, rejected with path, value, reason and remedy, accepted if permitted."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.strategies import examples
from webhook.core import outcomes
from webhook.core.document.yaml.problems import format_path
from webhook.core.outcomes import OUTCOMES_MAX, BadOutcomesError, PushedOutcome, Refusal, decode
from webhook.core.policy.model import Match, Service
from webhook.core.policy_fields import Breaker, OutcomeRules, OutcomeSource, QuotaExceeded

GOOD = {"service": "web", "ok": True, "latency": 0.25}


def body(*outcomes: Any) -> bytes:
    return json.dumps(outcomes).encode()


def read_error(raw: bytes) -> str:
    with pytest.raises(BadOutcomesError) as caught:
        decode(raw)
    return str(caught.value)


def test_batch_is_decoded_exactly_and_omitted_fields_are_none() -> None:
    full = {"service": "api", "ok": False, "latency": 3, "uid": "u-1", "generation": 7}
    bare = {**GOOD, "uid": None, "generation": None}
    assert decode(body(GOOD, full, bare)) == (
        PushedOutcome("web", True, 0.25),  # noqa: FBT003  as the wire has it
        PushedOutcome("api", False, 3.0, "u-1", 7),  # noqa: FBT003  as above
        PushedOutcome("web", True, 0.25),  # noqa: FBT003  as above
    )
    assert decode(b"[]") == ()


@pytest.mark.parametrize("latency", [0, 86_400, 86_400.0, 1e-9, 1e4])
def test_a_latency_may_be_any_number_of_seconds_up_to_a_day(latency: float) -> None:
    assert decode(body({**GOOD, "latency": latency}))[0].latency == latency


WRONG_FIELDS: dict[str, tuple[bytes, str]] = {
    "latency_a_text": (b'"slow"', '"slow": Expected `float`, got `str`: write seconds from 0 to 86400, such as 0.25'),
    "latency_a_boolean": (b"true", "true: Expected `float`, got `bool`: write seconds from"),
    "latency_null": (b"null", "null: Expected `float`, got `null`: write seconds from"),
    "latency_negative": (b"-0.1", "-0.1: Expected `float` >= 0.0: write seconds from"),
    "latency_beyond_a_day": (b"86400.1", "86400.1: Expected `float` <= 86400.0: write seconds from"),
    "latency_infinite": (b"1e999", "1e999: Number out of range: write seconds from"),
    "latency_of_400_digits": (b"9" * 400, f"{'9' * 79}…: Number out of range: write seconds from"),
    "ok_a_number": (b"1", "1: Expected `bool`, got `int`: write true, or false for an error"),
    "ok_a_text": (b'"yes"', '"yes": Expected `bool`, got `str`: write true'),
    "service_a_number": (b"7", "7: Expected `str`, got `int`: write the name of a service"),
    "service_empty": (b'""', '"": Expected `str` of length >= 1: write the name of a service'),
    "service_of_64_letters": (b'"%s"' % (b"x" * 64), f'"{"x" * 64}": Expected `str` of length <= 63: write the name'),
    "uid_a_number": (b"7", "7: Expected `str | null`, got `int`: write the uid of a Pod, or leave it out"),
    "uid_empty": (b'""', '"": Expected `str` of length >= 1: write the uid'),
    "uid_of_300_letters": (b'"%s"' % (b"x" * 300), f'"{"x" * 78}…: Expected `str` of length <= 253: write the uid'),
    "generation_a_fraction": (b"1.5", "1.5: Expected `int | null`, got `float`: write the breaker's generation, a"),
    "generation_negative": (b"-1", "-1: Expected `int` >= 0: write the breaker's generation"),
    "generation_inexact": (b"9007199254740993", "9007199254740993: Expected `int` <= 9007199254740992: write"),
}


@pytest.mark.parametrize("name", WRONG_FIELDS)
def test_invalid_field_is_reported_with_path_value_and_remedy(name: str) -> None:
    raw, expected = WRONG_FIELDS[name]
    field = name.partition("_")[0]
    entry = json.dumps({**GOOD, field: "@"}).encode().replace(b'"@"', raw)
    assert read_error(b"[%s, %s, %s]" % (body(GOOD)[1:-1], body(GOOD)[1:-1], entry)).startswith(
        f"[2].{field}: {expected}"
    )


WRONG_BODIES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "(body): not JSON: Input data was truncated: send a JSON list of at most 10000 outcomes"),
    "not_json": (b"ok", "(body): not JSON: JSON is malformed"),
    "cut_off": (body(GOOD)[:-1], "(body): not JSON: Input data was truncated"),
    "trailing_text": (body(GOOD) + b"x", "(body): not JSON: JSON is malformed: trailing characters"),
    "nan": (body(GOOD).replace(b"0.25", b"NaN"), "(body): not JSON: JSON is malformed"),
    "wrong_and_then_cut_off": (body({**GOOD, "ok": 1}, GOOD)[:-3], "(body): not JSON: "),
    "not_utf8": (body(GOOD).replace(b"web", b"\xff\xfe"), "(body): not JSON: 'utf-8' codec can't decode"),
    "lone_surrogate": (body(GOOD).replace(b"web", b"\\ud800"), "(body): not JSON: JSON is malformed"),
    "nested_too_deeply": (b"[" * 100_000, "(body): not JSON: "),
    "one_outcome": (body(GOOD)[1:-1], "(body): Expected `array`, got `object`: send a JSON list"),
    "too_many": (body(*[GOOD] * (OUTCOMES_MAX + 1)), "(body): Expected `array` of length <= 10000: send a JSON list"),
    "a_number_in_the_list": (body(GOOD, 7), "[1]: 7: Expected `object`, got `int`: the fields are service, ok, "),
    "a_field_too_few": (body({"service": "web", "ok": True}), "[0].latency: (absent): missing required field: write s"),
    "a_field_too_many": (body({**GOOD, "code": {"http": 500}}), '[0].code: {"http": 500}: contains unknown field: '),
    "a_field_of_odd_name": (
        body({**GOOD, "a`b\n": 1}),
        '[0]["a`b\\n"]: 1: contains unknown field: the fields are serv',
    ),
    "field_name_like_a_path": (
        body({**GOOD, "x - at `$[y": 2}),
        '[0]["x - at `$[y"]: 2: contains unknown field',
    ),
    "field_name_with_another_path": (
        body(GOOD, {**GOOD, "x` - at `$[7].ok`": 2}),
        '[1]["x` - at `$[7].ok`"]: 2: contains unknown field: the fields are serv',
    ),
    "hidden_characters": (
        '[{"service": "web", "ok": "\u202e\u2028", "latency": 0}]'.encode(),
        '[0].ok: "\\u202e ": Expected `bool`, got `str`: write true',
    ),
}


@pytest.mark.parametrize("name", WRONG_BODIES)
def test_invalid_body_is_reported_in_one_line(name: str) -> None:
    raw, expected = WRONG_BODIES[name]
    message = read_error(raw)
    assert message.startswith(expected), message
    assert message.isprintable()
    assert len(message) < 400


@examples(200)
@given(st.lists(st.sampled_from([" - at `$[", "7", "y", "]", ".ok", "`", "field `", "\n"]), min_size=1).map("".join))
def test_path_of_an_unknown_field_is_correct_for_any_name(name: str) -> None:
    message = read_error(body(GOOD, {**GOOD, name: 2}))
    assert message.startswith(f"{format_path((1, name))}: 2: contains unknown field: the fields are "), message


@examples(200)
@given(st.binary(max_size=40) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(body))
def test_any_body_is_decoded_or_rejected(raw: bytes) -> None:
    try:
        decode(raw)
    except BadOutcomesError as error:
        assert "\n" not in str(error)  # noqa: PT017  a body may also be valid


def service(outcomes: OutcomeRules | None) -> Service:
    return Service("web", Match(namespaces=("web",)), breaker=Breaker(outcomes, quota_exceeded=QuotaExceeded()))


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (None, Refusal.NO_SERVICE),
        (Service("web", Match(namespaces=("web",))), Refusal.NOT_PUSHED),
        (service(None), Refusal.NOT_PUSHED),
        (service(OutcomeRules(OutcomeSource.POD_START, reporters=("edge",))), Refusal.NOT_PUSHED),
        (service(OutcomeRules(OutcomeSource.PUSHED, reporters=("edge-2", "Edge", "edg"))), Refusal.NOT_NAMED),
        (service(OutcomeRules(OutcomeSource.PUSHED, reporters=("other", "edge"))), None),
    ],
    ids=["no service", "no breaker", "no outcomes", "outcomes of Pods", "other reporters", "named"],
)
def test_only_a_service_that_names_the_reporter_accepts_its_outcomes(
    owner: Service | None, expected: Refusal | None
) -> None:
    assert outcomes.find_refusal(owner, "edge") is expected


def test_response_does_not_reveal_why_an_outcome_was_rejected() -> None:
    first, second = outcomes.build_refused_outcome(3, "web", "edge"), outcomes.build_refused_outcome(4, "ghost", "edge")
    assert first.reason == second.reason
    assert json.loads(outcomes.encode(7, [first])) == {
        "accepted": 7,
        "refused": [{"index": 3, "service": "web", "reason": first.reason}],
    }
