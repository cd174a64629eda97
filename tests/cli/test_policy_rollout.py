"""Commands on the rollout of a policy without a cluster: mistakes, and the pages."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.cli.command_runner import podgate, policy_text
from webhook.commands.pages.rollout_page import format_change, format_history, format_plan, format_rollout
from webhook.core.kubernetes.quantity import Duration
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.policy_fields.rollout import Canary, CanaryStep, RollbackRules, Rollout, ShadowRules
from webhook.core.reporting.candidate_document import RolloutDocument, ShadowEntry, ShadowReport
from webhook.core.reporting.rollout_reports import (
    ChangeDocument,
    Follower,
    HistorySource,
    list_history,
)
from webhook.core.rollout.plan import PlannedWorkload, plan_steps
from webhook.core.rollout.state import InForce, Intervention, Phase, Rejection, RolloutState

A, B, C, D = ("a" * 16, "b" * 16, "c" * 16, "d" * 16)
T0 = "2026-12-01T04:00:00Z"
STANZA = Rollout(shadow=ShadowRules(), canary=Canary((CanaryStep(Duration.parse("5m"), namespaces=("staging-*",)),)))
WEB = "- {name: web, match: {namespaces: [shop]}}\n"


@pytest.mark.parametrize("command", ["pause", "rollback"])
def test_a_reason_is_asked_for(command: str) -> None:
    assert podgate("policy", command).error == "--reason: missing: give one, such as --reason INC-1234"


@pytest.mark.parametrize(
    "command",
    [
        ("promote",),
        ("retry",),
        ("pause", "--reason", "x"),
        ("rollback", "--reason", "x"),
        ("history",),
        ("wait", "--for", "promoted"),
        ("diff",),
        ("candidate",),
    ],
)
def test_without_a_cluster_the_exit_code_is_2(command: tuple[str, ...], tmp_path: Path) -> None:
    done = podgate("policy", *command, "--kubeconfig", tmp_path / "none")
    assert (done.code, str(tmp_path / "none") in done.err) == (2, True)


def test_durations_are_checked(tmp_path: Path) -> None:
    assert podgate("policy", "wait", "--for", "promoted", "--timeout", "x").code == 2
    assert podgate("policy", "retry", "--wait", "x", "--kubeconfig", tmp_path / "none").error.startswith("--wait 'x'")
    assert podgate("policy", "wait").code == 2


def test_a_file_comes_before_a_revision_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("7", "candidate"):
        Path(name).write_text(policy_text(WEB))
    assert podgate("policy", "diff", "7", "candidate").code == 0


def test_mistakes_are_worded_as_everywhere(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(policy_text("- {name: web, mach: {namespaces: [shop]}}\n"))
    done = podgate("policy", "diff", bad, bad)
    assert done.err.startswith(f"error: {bad}: 2 mistakes in the policy: fix what is listed here\n  {bad}:")


def test_the_history_shows_what_is_not_kept_first() -> None:
    state = RolloutState(A, pinned=Intervention("INC-1"), rejected=(Rejection(C, "INC-1", by="ann", at=T0),))
    entries = list_history(HistorySource(((3, B, T0, True), (2, D, T0, False), (1, A, T0, True)), C, InForce(A), state))
    assert [line.split()[:2] for line in format_history(entries)] == [
        ["REVISION", "HASH"],
        ["-", C],
        ["3", B],
        ["2", D],
        ["1", A],
    ]
    assert [entry.roles for entry in entries] == [("wished", "taken back"), ("was in force",), (), ("in force",)]
    assert "wished, taken back  INC-1, by ann, at" in list(format_history(entries))[1]
    assert list(format_history(entries))[4].endswith("in force            pinned: INC-1")
    assert list(format_history(())) == ["no policy is kept"]


def test_a_change_says_which_servers_do_not_follow() -> None:
    state = RolloutState(A, governed=True, phase=Phase.CANARY, candidate=B)
    servers = (Follower("pod a", A), Follower("pod b", C), Follower("pod c", error="HTTP 503"), Follower("pod d"))
    change = ChangeDocument(
        command="to be tried again",
        dry_run=False,
        in_force=A,
        candidate=B,
        wished=B,
        revert_in_git="",
        next_command="",
        state=state,
        servers=servers,
    )
    assert list(format_change(change)) == [
        "to be tried again",
        f"in force: {A}",
        f"candidate: {B}: canary step 1",
        "servers: 1 of 4 follow",
        f"  pod b: {C} is in force there",
        "  pod c: HTTP 503",
        "  pod d: no policy is in force there",
    ]


def show(state: RolloutState, wished: str, in_force: InForce, stanza: Rollout | None = STANZA) -> list[str]:
    return list(format_rollout(RolloutDocument.build(wished, in_force, state, stanza)))


def test_the_rollout_says_what_it_waits_for() -> None:
    canary = RolloutState(A, governed=True, phase=Phase.CANARY, candidate=B, since=T0)
    lines = [f"in force: {A}", f"candidate: {B}"]
    both = InForce(A, B)
    last = "  next step: not before 2026-12-01T04:05:00Z"
    assert show(canary, B, both) == [*lines, f"  canary step 1 of 1, since {T0}", last]
    assert show(canary, B, both, None) == [*lines, f"  canary step 1, since {T0}"]
    stanza = replace(STANZA, rollback=RollbackRules())
    above = replace(canary, above_since={"pending": T0}, waits_for="19 Pods, 20 needed")
    assert show(above, C, both, stanza) == [
        *lines,
        f"  canary step 1 of 1, since {T0}, waits: 19 Pods, 20 needed",
        last,
        f"  taken back when pending > 8 % for 3m: above since {T0}",
        "  taken back when denied > 5 % for 3m",
        "  taken back when startErrors > 10 % for 5m",
        f"wished: {C}: comes after the candidate",
    ]
    paused = replace(canary, paused=Intervention("INC-1"))
    assert show(paused, B, both) == [*lines, f"  canary step 1 of 1, since {T0}, paused: INC-1"]
    shadow = replace(canary, phase=Phase.SHADOW)
    report = ShadowReport(100, (ShadowEntry("web", "denied", 3), ShadowEntry("", "admitted", 1)), 2, "HTTP 503")
    found = replace(RolloutDocument.build(B, both, shadow, STANZA), shadow=report)
    assert list(format_rollout(found))[4:] == [
        "  shadow: 100 Pods judged by 2 servers; HTTP 503",
        "    web: 3 Pods differ: denied",
        "    no service: 1 Pods differ: admitted",
    ]
    assert show(shadow, B, both)[2:] == [f"  shadow, since {T0}", "  next step: not before 2026-12-01T04:10:00Z"]


def test_the_rollout_says_why_the_wished_policy_is_not_tried() -> None:
    lines = [f"in force: {A}", "candidate: none"]
    rejected = RolloutState(A, rejected=(Rejection(C, "Pending", "9 % > 8 %"),))
    assert show(rejected, C, InForce(A)) == [*lines, f"wished: {C}: was taken back: Pending (9 % > 8 %)"]
    pinned = RolloutState(A, pinned=Intervention("INC-1"))
    assert show(pinned, C, InForce(A)) == [
        lines[0],
        "  pinned: INC-1",
        lines[1],
        f"wished: {C}: is not tried while the other is pinned",
    ]
    governed = RolloutState(A, governed=True)
    assert show(governed, C, InForce(A)) == [*lines, f"wished: {C}: waits for the leader to begin"]
    paused = replace(governed, paused=Intervention("INC-2"))
    assert show(paused, A, InForce(A)) == [*lines, "  no candidate, paused: INC-2"]


def test_a_plan_is_a_table_of_steps() -> None:
    workloads = [PlannedWorkload(f"staging-{i}", "Deployment", "web", "web") for i in range(7)]
    steps = plan_steps(STANZA, B, workloads, {}, parse_microseconds(T0))
    spaces = "staging-0, staging-1, staging-2, staging-3, staging-4 and 2 more"
    assert list(format_plan(B, A, steps)) == [
        f"from {A} to {B}, at the earliest:",
        "STEP  FROM                  REACHES                         WORKLOADS  NAMESPACES",
        "1     2026-12-01T04:00:00Z  10% of reviews, without effect  0 of 7     -",
        f"2     2026-12-01T04:10:00Z  namespaces staging-*            7 of 7     {spaces}",
        f"3     2026-12-01T04:15:00Z  everywhere                      7 of 7     {spaces}",
    ]
    assert list(format_plan(A, A, steps)) == [f"{A} is in force: there is nothing to roll out"]
