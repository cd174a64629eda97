"""Commands on the rollout of a policy without a cluster: mistakes, and the pages."""

from pathlib import Path

import pytest

from tests.cli.command_runner import podgate, policy_text
from webhook.commands.pages.rollout_page import format_change, format_history
from webhook.core.reporting.rollout_document import ChangeDocument, Follower, list_history
from webhook.core.rollout.state import InForce, Intervention, Phase, Rejection, RolloutState

A, B, C = ("a" * 16, "b" * 16, "c" * 16)
T0 = "2026-12-01T04:00:00Z"
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
    entries = list_history([(2, B, T0), (1, A, T0)], C, InForce(A), state)
    assert [line.split()[:2] for line in format_history(entries)] == [
        ["REVISION", "HASH"],
        ["-", C],
        ["2", B],
        ["1", A],
    ]
    assert "wished, taken back  INC-1, by ann, at" in list(format_history(entries))[1]
    assert list(format_history(entries))[3].endswith("in force            pinned: INC-1")
    assert list(format_history(())) == ["no policy is kept"]


def test_a_change_says_which_servers_do_not_follow() -> None:
    state = RolloutState(A, governed=True, phase=Phase.CANARY, candidate=B)
    servers = (Follower("pod a", A), Follower("pod b", C), Follower("pod c", error="HTTP 503"), Follower("pod d"))
    change = ChangeDocument("to be tried again", False, A, B, B, "", "", state, servers)  # noqa: FBT003  a record
    assert list(format_change(change)) == [
        "to be tried again",
        f"in force: {A}",
        f"candidate: {B}: canary step 1",
        "servers: 1 of 4 follow",
        f"  pod b: {C} is in force there",
        "  pod c: HTTP 503",
        "  pod d: no policy is in force there",
    ]
