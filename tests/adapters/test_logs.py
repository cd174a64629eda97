"""Logs: denials, a sample of the rest, floods bounded, one JSON object a line."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from tests.harness.records import ADMITTED, ADVISED, AT_NS, BREAKER_DENIED, QUOTA_DENIED, policy, review, transition
from webhook.adapters.logs import JsonLines, Logs
from webhook.core.admission.decision import Finding, WouldWrite
from webhook.core.breaker import EXPIRED, HELD, State, TransitionCause
from webhook.core.findings import Code
from webhook.core.kubernetes.admission_request import ResponseStatus
from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_fields import Mode, Quota, Window


class Output(io.StringIO):
    """The written lines, and a settable clock."""

    at_ns = AT_NS

    def lines(self) -> list[dict[str, Any]]:
        text = self.getvalue()
        assert text == "" or text.endswith("\n")
        return [json.loads(line) for line in text.splitlines()]

    def logs(self, **settings: Any) -> Logs:
        return Logs(JsonLines(self, lambda: self.at_ns), **settings)


@pytest.fixture
def output() -> Output:
    return Output()


def test_denial_is_one_line_with_all_fields(output: Output) -> None:
    output.logs(sample_every=0).on_reviewed(review(QUOTA_DENIED, 1_234_567))
    assert output.lines() == [
        {
            "time": "2027-01-15T08:00:00.123Z",
            "level": "warning",
            "msg": "denied",
            "uid": "review-1",
            "half": "validate",
            "operation": "CREATE",
            "service": "payment-api",
            "decision": "Deny",
            "code": "QuotaExceeded",
            "findings": ["QuotaExceeded/Enforce"],
            "user": "system:serviceaccount:kube-system:replicaset-controller",
            "namespace": "payments",
            "pod": "payment-api-7d9c",
            "pod_uid": "pod-1",
            "duration_ms": 1.235,
            "policy_hash": "0123456789abcdef",
            "client_id": "prod-eu-1",
            "status": 429,
            "message": "QuotaExceeded: service payment-api: pods in 1m: hard 50, used 50, asked 1",
        }
    ]


def test_denials_are_logged_whatever_the_sampling(output: Output) -> None:
    logs = output.logs(sample_every=0, refusals_per_second_max=1)
    for number in range(200):
        output.at_ns += 200_000_000
        logs.on_reviewed(review(replace(BREAKER_DENIED, review_uid=f"review-{number}")))
    assert [line["uid"] for line in output.lines()] == [f"review-{number}" for number in range(200)]
    assert not any("suppressed" in line for line in output.lines())


def test_denials_are_bounded_per_service_and_code_and_the_rest_counted(output: Output) -> None:
    logs = output.logs(denials_per_second_max=2)
    of_another = replace(BREAKER_DENIED, service="ledger")
    for decision in (*[BREAKER_DENIED] * 5, *[QUOTA_DENIED] * 3, of_another, replace(BREAKER_DENIED, service=None)):
        logs.on_reviewed(review(decision))
    output.at_ns += 1_000_000_000
    for _ in range(2):
        logs.on_reviewed(review(BREAKER_DENIED))
    lines = [(line.get("service"), line["code"], line.get("suppressed")) for line in output.lines()]
    ours = "payment-api"
    assert lines == [
        *[(ours, "BreakerOpen", None)] * 2,
        *[(ours, "QuotaExceeded", None)] * 2,
        ("ledger", "BreakerOpen", None),
        (None, "BreakerOpen", None),
        (ours, "BreakerOpen", 3),
        (ours, "BreakerOpen", None),
    ]
    assert {line["msg"] for line in output.lines()} == {"denied"}


@pytest.mark.parametrize("ends", [lambda logs: logs.close(), lambda logs: logs.on_policy_loaded(policy("ledger"))])
def test_suppressed_denials_are_counted_at_the_end_of_service_or_server(
    output: Output, ends: Callable[[Logs], None]
) -> None:
    logs = output.logs(denials_per_second_max=1)
    logs.on_policy_loaded(policy("payment-api", "ledger"))
    for _ in range(3):
        logs.on_reviewed(review(BREAKER_DENIED))
    before = len(output.lines())
    ends(logs)
    suppressed = [line for line in output.lines()[before:] if line["msg"] == "log lines suppressed"]
    assert [(line["service"], line["code"], line["suppressed"]) for line in suppressed] == [
        ("payment-api", "BreakerOpen", 2)
    ]
    before = len(output.lines())
    ends(logs)
    assert all(line["msg"] != "log lines suppressed" for line in output.lines()[before:])


def test_code_is_that_of_the_enforced_finding(output: Output) -> None:
    audited = Finding(Code.PLACEMENT_UNFULFILLED, "placement", Mode.AUDIT, "zone")
    output.logs().on_reviewed(review(replace(QUOTA_DENIED, findings=(audited, *QUOTA_DENIED.findings))))
    [line] = output.lines()
    assert line["code"] == "QuotaExceeded"
    assert line["findings"] == ["PlacementUnfulfilled/Audit", "QuotaExceeded/Enforce"]


@pytest.mark.parametrize(("every", "written"), [(0, []), (1, [0, 1, 2, 3, 4, 5, 6]), (3, [2, 5])])
def test_every_nth_other_review_is_logged(output: Output, every: int, written: list[int]) -> None:
    logs = output.logs(sample_every=every)
    for number in range(7):
        logs.on_reviewed(review(replace(ADMITTED, review_uid=str(number))))
    assert [int(line["uid"]) for line in output.lines()] == written
    assert all(line["msg"] == "reviewed" and line["level"] == "info" for line in output.lines())


def test_line_names_the_rewrites_of_enforce(output: Output) -> None:
    written = (WouldWrite("placement", Mode.AUDIT, ("spec.affinity",)),)
    output.logs(sample_every=1).on_reviewed(review(replace(ADMITTED, would_write=written)))
    [line] = output.lines()
    assert line["would_rewrite"] == ["placement/Audit"]
    assert "findings" not in line


def test_line_of_a_template_names_the_workload_and_no_pod(output: Output) -> None:
    output.logs(sample_every=1).on_reviewed(review(ADVISED))
    [line] = output.lines()
    assert {key: line.get(key) for key in ("msg", "workload", "pod", "user", "findings")} == {
        "msg": "reviewed",
        "workload": "deployment.apps/payment-api",
        "pod": None,
        "user": "alice",
        "findings": ["PlacementConflict/Warn", "PlacementConflict/Warn"],
    }


def test_internal_error_is_logged_as_an_error(output: Output) -> None:
    output.logs().on_reviewed(
        review(replace(BREAKER_DENIED, status=ResponseStatus(500, "InternalError", "internal error")))
    )
    assert output.lines()[0]["level"] == "error"


def test_refused_calls_are_bounded_and_the_rest_counted(output: Output) -> None:
    logs = output.logs(refusals_per_second_max=2)
    for _ in range(5):
        logs.on_refused("authentication_expired", "exp 1799999990 is 10 s ago")
    output.at_ns += 1_000_000_000
    logs.on_refused("authentication_audience", "aud is ['other']")
    lines = output.lines()
    assert [(line["reason"], line.get("suppressed")) for line in lines] == [
        ("authentication_expired", None),
        ("authentication_expired", None),
        ("authentication_audience", 3),
    ]
    assert lines[0]["detail"] == "exp 1799999990 is 10 s ago"


def test_suppressed_lines_are_counted_at_the_end(output: Output) -> None:
    logs = output.logs(refusals_per_second_max=1)
    logs.on_refused("no_token", "")
    logs.on_refused("no_token", "")
    logs.close()
    assert output.lines()[-1] == {
        "time": "2027-01-15T08:00:00.123Z",
        "level": "warning",
        "msg": "log lines suppressed",
        "suppressed": 1,
    }


def test_long_detail_is_cut_to_one_line(output: Output) -> None:
    output.logs().on_refused("bad_review", "x\n" * 100_000)
    [line] = output.lines()
    assert len(line["detail"]) < 3_000


def test_transitions_and_policies_are_written(output: Output) -> None:
    logs = output.logs()
    logs.on_transition(transition(State.CLOSED, State.OPEN, "errorRate: 97% of 40"))
    logs.on_transition(transition(State.HALF_OPEN, State.CLOSED, "3 probes succeeded"))
    logs.on_policy_loaded(policy("payment-api", "ledger"))
    logs.on_policy_failed(["p.yaml:3:1: services: missing"])
    opened, closed, loaded, failed = output.lines()
    assert (opened["level"], opened["service"], opened["old"], opened["new"], opened["reason"]) == (
        "warning",
        "payment-api",
        "CLOSED",
        "OPEN",
        "errorRate: 97% of 40",
    )
    assert (closed["level"], closed["new"]) == ("info", "CLOSED")
    assert (loaded["policy_hash"], loaded["services"]) == ("0123456789abcdef", 2)
    assert (failed["level"], failed["errors"]) == ("error", ["p.yaml:3:1: services: missing"])


@pytest.mark.parametrize(
    ("old", "new", "reason", "level", "message"),
    [
        (State.OPEN, State.FORCED_CLOSED, "INC-1", "warning", "breaker transition"),
        (State.FORCED_CLOSED, State.CLOSED, "released manually", "info", "breaker transition"),
        (State.CLOSED, State.CLOSED, HELD + "latency: mean > 2s", "error", "breaker trip suppressed"),
        (State.HALF_OPEN, State.HALF_OPEN, EXPIRED, "warning", "breaker probe expired"),
    ],
)
def test_breaker_event_level_follows_its_kind(
    output: Output, old: State, new: State, reason: str, level: str, message: str
) -> None:
    cause = TransitionCause.LATENCY if reason.startswith(HELD) else None
    output.logs().on_transition(transition(old, new, reason, cause=cause))
    [line] = output.lines()
    logged = {key: line[key] for key in ("level", "msg", "service", "old", "new", "reason", "generation")}
    assert logged == {
        "level": level,
        "msg": message,
        "service": "payment-api",
        "old": old,
        "new": new,
        "reason": reason,
        "generation": 1,
    }


def test_new_policy_logs_once_which_counters_start_empty(output: Output) -> None:
    def load_limited(window: str) -> LoadedPolicy:
        service = policy("ledger").policy.services[0]
        windows = (Window(Duration.parse(window), {"pods": Quantity.parse("5")}),)
        loaded = policy()
        return replace(
            loaded, policy=replace(loaded.policy, services=(replace(service, quota=Quota(windows=windows)),))
        )

    logs = output.logs()
    for window in ("1m", "1m", "2m", "2m"):
        logs.on_policy_loaded(load_limited(window))
    line = "services[ledger].quota.windows[2m]: starts empty: no window of this length counted before"
    assert [written.get("starts_empty") for written in output.lines()] == [None, None, [line], None]


class FullPipe(Output):
    """Fails as a full non-blocking pipe does."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise BlockingIOError
        return super().write(text)


def test_full_pipe_loses_lines_and_counts_them() -> None:
    output = FullPipe()
    logs = output.logs()
    logs.on_reviewed(review(QUOTA_DENIED))
    logs.on_reviewed(review(QUOTA_DENIED))
    output.full = False
    logs.on_reviewed(review(QUOTA_DENIED))
    logs.on_reviewed(review(QUOTA_DENIED))
    assert [line.get("lines_lost") for line in output.lines()] == [2, None]


def test_closed_stream_raises_nothing(output: Output) -> None:
    logs = output.logs()
    output.close()
    logs.on_reviewed(review(QUOTA_DENIED))


@contextmanager
def standard_logging(output: Output) -> Iterator[None]:
    """Not a fixture: pytest hangs its own handlers on the root logger after fixtures have run."""
    logs = output.logs()
    logs.adopt_standard_logging(logging.INFO)
    try:
        yield
    finally:
        logs.close()


def test_library_logs_have_the_same_format(output: Output) -> None:
    with standard_logging(output):
        try:
            int("broken")
        except ValueError:
            logging.getLogger("aiohttp.server").exception("Error handling %s", "request")
        logging.getLogger("asyncio").info("a plain line")
        logging.getLogger("asyncio").debug("below the level")
    failure, plain = output.lines()
    assert (failure["level"], failure["logger"], failure["msg"]) == (
        "error",
        "aiohttp.server",
        "Error handling request",
    )
    assert failure["stack"].endswith("ValueError: invalid literal for int() with base 10: 'broken'\n")
    assert (plain["level"], plain["msg"]) == ("info", "a plain line")


def test_malformed_library_log_call_is_harmless(output: Output) -> None:
    with standard_logging(output):
        logging.getLogger("aiohttp").warning("%d calls", "many")
    assert output.lines()[0]["msg"] == "%d calls"


def test_library_flood_is_bounded(output: Output) -> None:
    with standard_logging(output):
        for _ in range(1000):
            logging.getLogger("aiohttp.server").error("bad request")
    assert len(output.lines()) == 10


def test_standard_logging_is_restored_at_close(output: Output) -> None:
    root = logging.getLogger()
    former = (list(root.handlers), root.level)
    with standard_logging(output):
        assert (root.handlers, root.level) != former
    assert (root.handlers, root.level) == former
