"""`podgate breaker`: what open, close and reset write, and the table of all breakers."""

import json
from getpass import getuser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.app.status_command import plain_port
from tests.cli.command_runner import podgate
from tests.core.reporting.status import NOW_US, OPEN, SNAPSHOTS, snapshot
from webhook.core.breaker import BreakerView, State
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose
from webhook.core.document import load as load_policy
from webhook.core.overrides.loading import load
from webhook.core.quota import ServiceSnapshot
from webhook.core.reporting.status import render_server_status

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
- name: divided
  match: {namespaces: [divided]}
  placement: {shares: {variants: [
    {name: spot, weight: 4, nodeSelector: {kind: spot}},
    {name: on-demand, weight: 1, nodeSelector: {kind: on-demand}}]}}
"""
FOR = ("--for", "10m", "--reason", "INC-1")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "overrides.yaml"
    (tmp_path / "policy.yaml").write_text(POLICY)
    monkeypatch.setenv("PODGATE_OVERRIDES", str(path))
    monkeypatch.setenv("PODGATE_POLICY", str(tmp_path / "policy.yaml"))
    return path


def entry_fields(file: Path) -> dict[str, Any]:
    """Return the fields of the only entry, without until and reason."""
    [entry] = load(file.read_bytes()).entries
    return {
        key: value for key, value in entry.encode_plain().items() if key not in {"service", "until", "reason", "by"}
    }


@pytest.mark.parametrize(("verb", "word"), [("open", "ForcedOpen"), ("close", "ForcedClosed")])
def test_open_and_close_force_a_state_for_a_time(file: Path, verb: str, word: str) -> None:
    done = podgate("breaker", verb, "payment-api", *FOR)
    assert done.code == 0, done.err
    assert entry_fields(file) == {"breaker": word}
    assert done.out.startswith(f"payment-api: breaker: {word} until ")
    assert done.out.endswith(f": INC-1 (by {getuser()})\n")
    assert podgate("breaker", verb, "payment-api", "--reason", "x").code == 2, "a duration is required"


def test_reset_records_its_time_and_releases_a_forced_breaker(file: Path) -> None:
    assert podgate("breaker", "open", "payment-api", *FOR).code == 0
    assert podgate("breaker", "reset", "payment-api", "--reason", "INC-1 over").code == 0
    [entry] = load(file.read_bytes()).entries
    assert set(entry_fields(file)) == {"breaker", "resetAt"}
    assert entry_fields(file)["breaker"] == "Automatic"
    assert entry.reset_at_us is not None
    assert entry.reset_at_us < entry.until_us


def fields_of_entries(file: Path) -> list[set[str]]:
    """Return the names of each entry's fields."""
    return [
        set(entry.encode_plain()) - {"service", "until", "reason", "by"} for entry in load(file.read_bytes()).entries
    ]


def test_breaker_override_is_kept_beside_others_and_replaces_the_former_one(file: Path) -> None:
    assert podgate("override", "payment-api", "--quota-factor", "2", *FOR).code == 0
    assert podgate("breaker", "open", "payment-api", *FOR).code == 0
    assert fields_of_entries(file) == [{"quotaFactor"}, {"breaker"}]
    assert podgate("breaker", "reset", "payment-api", *FOR).code == 0
    assert fields_of_entries(file) == [{"quotaFactor"}, {"breaker", "resetAt"}]
    assert podgate("breaker", "open", "payment-api", *FOR, "--merge").code == 0
    assert fields_of_entries(file) == [{"quotaFactor", "breaker", "resetAt"}]


GRANT = ("quota", "grant", "payment-api", "--window", "1m", "--hard", "pods=5")


@pytest.mark.parametrize("first", [GRANT, ("breaker", "reset", "payment-api"), ("quota", "reset", "payment-api")])
@pytest.mark.parametrize("second", [GRANT, ("breaker", "reset", "payment-api"), ("quota", "reset", "payment-api")])
def test_grants_and_resets_combine_in_any_order_and_record_their_author(
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


def test_opened_breaker_is_listed_and_cleared_as_an_override(file: Path) -> None:
    podgate("breaker", "open", "payment-api", *FOR)
    [shown] = json.loads(podgate("override", "--list").out)
    assert shown["breaker"] == "ForcedOpen"
    assert podgate("override", "payment-api", "--clear").code == 0
    assert load(file.read_bytes()).entries == ()


@pytest.mark.parametrize("verb", ["open", "close", "reset"])
def test_unknown_service_exits_4_and_one_without_a_breaker_2(file: Path, verb: str) -> None:
    done = podgate("breaker", verb, "nope", *FOR)
    assert (done.code, done.error) == (4, "no service 'nope': the policy has payment-api, free, divided")
    done = podgate("breaker", verb, "free", *FOR)
    assert (done.code, "free: breaker: the service has no breaker" in done.err) == (2, True)
    assert not file.exists()


SPOT = ("divided", "--variant", "spot")


@pytest.mark.parametrize(("verb", "word"), [("open", "ForcedOpen"), ("close", "ForcedClosed")])
def test_a_variant_is_forced_for_a_time(file: Path, verb: str, word: str) -> None:
    done = podgate("breaker", verb, *SPOT, *FOR)
    assert done.code == 0, done.err
    assert entry_fields(file) == {"variant": "spot", "breaker": word}
    assert done.out.startswith(f"divided: variant: spot, breaker: {word} until ")


def test_a_newer_state_of_a_variant_replaces_the_former_one_and_no_other(file: Path) -> None:
    assert podgate("override", "divided", "--mode", "placement=Warn", *FOR).code == 0
    assert podgate("breaker", "open", *SPOT, *FOR).code == 0
    assert podgate("breaker", "close", *SPOT, *FOR).code == 0
    assert podgate("breaker", "reset", *SPOT, "--reason", "over").code == 0
    assert fields_of_entries(file) == [{"modes"}, {"variant", "breaker", "resetAt"}]
    [_, entry] = load(file.read_bytes()).entries
    assert entry.breaker == "Automatic"


def test_overrides_of_a_variant_are_listed_and_ended_apart(file: Path) -> None:
    assert podgate("override", "divided", "--mode", "placement=Warn", *FOR).code == 0
    assert podgate("breaker", "open", *SPOT, *FOR).code == 0
    listed = podgate("override", "--list", "-o", "table").out
    assert "variant: spot, breaker: ForcedOpen" in listed
    done = podgate("override", *SPOT, "--clear")
    assert (done.code, fields_of_entries(file)) == (0, [{"modes"}]), done.err
    assert podgate("override", *SPOT, *FOR).error.startswith("--variant: without --clear")
    podgate("breaker", "open", *SPOT, *FOR)
    assert podgate("override", "divided", "--clear").code == 0
    assert load(file.read_bytes()).entries == (), "without a variant it ends all"


def test_a_variant_that_the_former_policy_of_a_rollout_may_have_is_written_with_a_warning(file: Path) -> None:
    policy = file.parent / "policy.yaml"
    steps = "rollout: {canary: {steps: [{namespaces: [stage]}]}}\nservices:"
    policy.write_text(POLICY.replace("services:", steps))
    done = podgate("breaker", "open", "divided", "--variant", "gpu", *FOR, "--policy", policy)
    assert done.code == 0, done.err
    assert entry_fields(file) == {"variant": "gpu", "breaker": "ForcedOpen"}
    assert "warning: divided: variant: gpu: no such variant; variants with a breaker: spot; the policy that" in done.err


@pytest.mark.parametrize("verb", ["open", "close", "reset"])
@pytest.mark.parametrize(
    ("service", "variant", "reason"),
    [
        ("divided", "gpu", "divided: variant: gpu: no such variant; variants with a breaker: spot"),
        ("divided", "on-demand", "divided: variant: on-demand: the last of the list, which nothing replaces"),
        ("free", "spot", "free: variant: spot: the service has no placement.shares"),
        ("divided", "Spot/1", "variant: Spot/1: not a DNS-1123 label"),
    ],
)
def test_an_unknown_variant_is_an_error(file: Path, verb: str, service: str, variant: str, reason: str) -> None:
    done = podgate("breaker", verb, service, "--variant", variant, *FOR)
    assert (done.code, reason in done.error) == (2, True), done.err
    assert not file.exists()


HALF_OPEN = replace(OPEN, state=State.HALF_OPEN, open_until_us=0, reason="openFor passed", early=0, failed=())
FORCED = BreakerView(State.FORCED_OPEN, 7, NOW_US - 60_000_000, NOW_US + 30_000_000, "INC-1")
CLOSED = replace(HALF_OPEN, state=State.CLOSED, reason="3 probes succeeded")


SINCE = TRIPPED = "2027-01-15T07:59:31.000Z"


def list_output(view: BreakerView | None, *arguments: str) -> str:
    snapshots = {name: found for name, found in SNAPSHOTS.items() if name != "payment-api"}
    if view is not None:
        snapshots["payment-api"] = ServiceSnapshot(NOW_US, {}, view)
    snapshots["web"] = ServiceSnapshot(NOW_US)
    with plain_port(msgspec.json.encode(render_server_status(snapshot(snapshots=snapshots)))) as url:
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
def test_list_shows_since_recovery_and_reason_of_each_breaker(
    view: BreakerView | None,
    state: str | None,
    since: str | None,
    triggered: str | None,
    seconds: int | None,
    reason: str,
) -> None:
    assert json.loads(list_output(view)) == [
        {
            "service": "payment-api",
            "variant": None,
            "state": state,
            "since": since,
            "triggeredAt": triggered,
            "secondsToRecovery": seconds,
            "reason": reason,
        }
    ]


def test_table_has_one_row_per_breaker() -> None:
    assert list_output(OPEN, "-o", "table") == (
        "SERVICE      STATE  SINCE                     TRIGGERED AT              SECONDS TO RECOVERY  REASON\n"
        f"payment-api  OPEN   {SINCE}  {TRIPPED}  151                  quotaExceeded: 10 within 1m\n"
    )


def test_variants_are_listed_after_the_services(file: Path) -> None:
    loaded = load_policy(file.with_name("policy.yaml").read_bytes(), Purpose.LINT).policy
    unschedulable = replace(OPEN, reason="unschedulable: no node for 300s, 1 Pod")
    snapshots = {"payment-api": ServiceSnapshot(NOW_US, {}, CLOSED)}
    snapshots |= {name: ServiceSnapshot(NOW_US) for name in ("free", "divided")}
    snapshots["divided/spot"] = ServiceSnapshot(NOW_US, {}, unschedulable)
    status = snapshot(policy=loaded, plans=CompiledPolicy(loaded).plans, snapshots=snapshots)
    with plain_port(msgspec.json.encode(render_server_status(status))) as url:
        found = json.loads(podgate("breaker", "list", "--server", url, "-o", "json").out)
        table = podgate("breaker", "list", "--server", url, "-o", "wide").out
    assert [(row["service"], row["variant"], row["state"]) for row in found] == [
        ("payment-api", None, "CLOSED"),
        ("divided", "spot", "OPEN"),
    ]
    [line] = [line for line in table.splitlines() if line.startswith("divided/spot ")]
    assert line.split()[1] == "OPEN"
    assert "unschedulable: no node for 300s, 1 Pod" in line


def test_unreachable_server_exits_2() -> None:
    assert podgate("breaker", "list", "--server", "http://127.0.0.1:1").code == 2
