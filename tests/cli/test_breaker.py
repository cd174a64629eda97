"""`podgate breaker`: what open, close and reset write, and the table of all breakers."""

import json
from getpass import getuser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.app.test_status_command import plain_port
from tests.cli.command_runner import podgate
from tests.core.reporting.test_status import NOW_US, OPEN, SNAPSHOTS, snapshot
from webhook.core.breaker import BreakerView, State
from webhook.core.overrides_document import load
from webhook.core.quota import ServiceSnapshot
from webhook.core.reporting.status import server_document

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: payment-api
  match: {namespaces: [payments]}
  quota: {windows: [{window: 1m, hard: {pods: 3}}]}
  breaker: {quotaExceeded: {}}
- name: free
  match: {namespaces: [free]}
"""
FOR = ("--for", "10m", "--reason", "INC-1")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "overrides.yaml"
    (tmp_path / "policy.yaml").write_text(POLICY)
    monkeypatch.setenv("PODGATE_OVERRIDES", str(path))
    monkeypatch.setenv("PODGATE_POLICY", str(tmp_path / "policy.yaml"))
    return path


def plain(file: Path) -> dict[str, Any]:
    """Return what the one entry does, without until and reason."""
    [entry] = load(file.read_bytes()).entries
    return {key: value for key, value in entry.plain().items() if key not in {"service", "until", "reason", "by"}}


@pytest.mark.parametrize(("verb", "word"), [("open", "ForcedOpen"), ("close", "ForcedClosed")])
def test_open_and_close_force_a_state_for_a_time(file: Path, verb: str, word: str) -> None:
    done = podgate("breaker", verb, "payment-api", *FOR)
    assert done.code == 0, done.err
    assert plain(file) == {"breaker": word}
    assert done.out.startswith(f"payment-api: breaker: {word} until ")
    assert done.out.endswith(f": INC-1 (by {getuser()})\n")
    assert podgate("breaker", verb, "payment-api", "--reason", "x").code == 2, "for how long must be said"


def test_reset_carries_its_moment_and_frees_what_was_forced(file: Path) -> None:
    assert podgate("breaker", "open", "payment-api", *FOR).code == 0
    assert podgate("breaker", "reset", "payment-api", "--reason", "INC-1 over").code == 0
    [entry] = load(file.read_bytes()).entries
    assert set(plain(file)) == {"breaker", "resetAt"}
    assert plain(file)["breaker"] == "Automatic"
    assert entry.reset_at_us is not None
    assert entry.reset_at_us < entry.until_us


def all_of(file: Path) -> list[set[str]]:
    """Return what each entry does."""
    return [set(entry.plain()) - {"service", "until", "reason", "by"} for entry in load(file.read_bytes()).entries]


def test_a_hand_on_a_breaker_stands_beside_what_else_is_done_and_takes_the_place_of_the_former_hand(file: Path) -> None:
    assert podgate("override", "payment-api", "--quota-factor", "2", *FOR).code == 0
    assert podgate("breaker", "open", "payment-api", *FOR).code == 0
    assert all_of(file) == [{"quotaFactor"}, {"breaker"}]
    assert podgate("breaker", "reset", "payment-api", *FOR).code == 0
    assert all_of(file) == [{"quotaFactor"}, {"breaker", "resetAt"}]
    assert podgate("breaker", "open", "payment-api", *FOR, "--merge").code == 0
    assert all_of(file) == [{"quotaFactor", "breaker", "resetAt"}]


GRANT = ("quota", "grant", "payment-api", "--window", "1m", "--hard", "pods=5")


@pytest.mark.parametrize("first", [GRANT, ("breaker", "reset", "payment-api"), ("quota", "reset", "payment-api")])
@pytest.mark.parametrize("second", [GRANT, ("breaker", "reset", "payment-api"), ("quota", "reset", "payment-api")])
def test_a_grant_and_a_reset_are_given_in_any_order_and_each_says_who_did_it(
    file: Path, first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    assert podgate(*first, "--for", "30m", "--reason", "INC-1").code == 0
    done = podgate(*second, "--for", "10m", "--reason", "INC-2")
    if first == second == GRANT:
        assert done.code == 2
        assert "payment-api has an override of grant of pods in 60s already: grant: " in done.error
        assert f"INC-1 (by {getuser()}): change it with --merge" in done.error
        assert "podgate override payment-api --clear" in done.error
        return
    assert done.code == 0, done.err
    entries = load(file.read_bytes()).entries
    assert [entry.reason for entry in entries] == (["INC-2"] if first == second else ["INC-1", "INC-2"])
    assert {entry.by for entry in entries} == {getuser()}


def test_an_opened_breaker_is_listed_among_overrides_and_cleared_as_any(file: Path) -> None:
    podgate("breaker", "open", "payment-api", *FOR)
    [shown] = json.loads(podgate("override", "--list").out)
    assert shown["breaker"] == "ForcedOpen"
    assert podgate("override", "payment-api", "--clear").code == 0
    assert load(file.read_bytes()).entries == ()


@pytest.mark.parametrize("verb", ["open", "close", "reset"])
def test_no_such_service_is_4_and_one_without_a_breaker_2(file: Path, verb: str) -> None:
    done = podgate("breaker", verb, "nope", *FOR)
    assert (done.code, done.error) == (4, "no service 'nope': the policy has payment-api, free")
    done = podgate("breaker", verb, "free", *FOR)
    assert (done.code, "free: breaker: the service has no breaker" in done.err) == (2, True)
    assert not file.exists()


HALF_OPEN = replace(OPEN, state=State.HALF_OPEN, open_until_us=0, reason="openFor passed", early=0, failed=())
FORCED = BreakerView(State.FORCED_OPEN, 7, NOW_US - 60_000_000, NOW_US + 30_000_000, "INC-1")
CLOSED = replace(HALF_OPEN, state=State.CLOSED, reason="3 probes succeeded")


SINCE = TRIPPED = "2027-01-15T07:59:31.000Z"


def listed(view: BreakerView | None, *arguments: str) -> str:
    looks = {name: look for name, look in SNAPSHOTS.items() if name != "payment-api"}
    if view is not None:
        looks["payment-api"] = ServiceSnapshot(NOW_US, {}, view)
    looks["web"] = ServiceSnapshot(NOW_US)
    with plain_port(msgspec.json.encode(server_document(snapshot(snapshots=looks)))) as url:
        done = podgate("breaker", "list", "--server", url, *arguments)
    assert done.code == 0, done.err
    return done.out


@pytest.mark.parametrize(
    ("view", "state", "since", "triggered", "seconds", "reason"),
    [
        (OPEN, "OPEN", SINCE, TRIPPED, 151, "quotaExceeded: 10 within 1m"),
        (HALF_OPEN, "HALF_OPEN", SINCE, TRIPPED, None, "openFor passed"),
        (FORCED, "FORCED_OPEN", "2027-01-15T07:59:00.000Z", None, 30, "INC-1"),
        (replace(FORCED, state=State.FORCED_CLOSED), "FORCED_CLOSED", "2027-01-15T07:59:00.000Z", None, None, "INC-1"),
        (CLOSED, "CLOSED", SINCE, TRIPPED, None, "3 probes succeeded"),
        (
            replace(FORCED, tripped_at_us=1_000_000, tripped_by="x"),
            "FORCED_OPEN",
            "2027-01-15T07:59:00.000Z",
            "1970-01-01T00:00:01.000Z",
            30,
            "INC-1",
        ),
        (None, None, None, None, None, ""),
    ],
    ids=lambda value: getattr(value, "state", None),
)
def test_the_list_says_since_when_how_long_and_why_and_leaves_out_who_has_no_breaker(
    view: BreakerView | None,
    state: str | None,
    since: str | None,
    triggered: str | None,
    seconds: int | None,
    reason: str,
) -> None:
    assert json.loads(listed(view)) == [
        {
            "service": "payment-api",
            "state": state,
            "since": since,
            "triggeredAt": triggered,
            "secondsToRecovery": seconds,
            "reason": reason,
        }
    ]


def test_on_a_terminal_it_is_one_table() -> None:
    assert listed(OPEN, "-o", "table") == (
        "SERVICE      STATE  SINCE                     TRIGGERED AT              SECONDS TO RECOVERY  REASON\n"
        f"payment-api  OPEN   {SINCE}  {TRIPPED}  151                  quotaExceeded: 10 within 1m\n"
    )


def test_who_cannot_reach_a_server_is_reported() -> None:
    assert podgate("breaker", "list", "--server", "http://127.0.0.1:1").code == 2
