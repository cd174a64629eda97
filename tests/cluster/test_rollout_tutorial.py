"""The tutorial of docs/rollouts.md, run as it is written on a control plane of its own.

A policy is broken on purpose, taken back by its symptoms, followed by a better one, and that one rolled back by hand.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.tutorial import ROOT, TUTORIAL, Terminal, find_blocks, install, make_folder

PAGE = (ROOT / "docs" / "rollouts.md").read_text().partition("\n## Tutorial")[2]
(INSTALL,) = re.findall(r"^```\n(podgate install .*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
POLICY = "docs/examples/rollouts/policy.yaml"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with make_folder(tmp_path) as folder:
        yield folder


def test_a_policy_that_is_broken_on_purpose_is_taken_back(folder: Path) -> None:
    assert f"--policy {POLICY}" in INSTALL
    commands = re.sub(r"podgate install .*\n", INSTALL, find_blocks(TUTORIAL)[0])
    with install(folder, commands) as (terminal, printed):
        assert "proven: the API server calls Podgate" in printed
        follow(terminal, folder)


def follow(terminal: Terminal, folder: Path) -> None:
    begin, plan, break_, after, better, drill = find_blocks(PAGE)
    assert "in force, wished" in terminal.run(begin)
    planned = terminal.run(plan)
    assert re.search(r"^1 +\S+Z +namespaces staging +1 of 2 +staging$", planned, re.MULTILINE)
    assert re.search(r"^3 +\S+Z +everywhere +2 of 2 +shop, staging$", planned, re.MULTILINE)
    assert "added: zone-x" in planned
    broken = terminal.run(break_)
    assert "was taken back: too many Pending Pods (" in broken
    assert broken.endswith("exit code 3\n")
    shown = terminal.run(after)
    assert "wished, taken back" in shown
    assert "successfully rolled out" in shown
    promoted = terminal.run(better)
    assert re.search(r"canary step 1.*canary step 2.* is in force\n$", promoted, re.DOTALL)
    back = terminal.run(drill)
    assert "pinned: drill, by " in back
    assert "servers: 1 of 1 follow" in back
    assert (folder / "policy.yaml").read_text() == (ROOT / POLICY).read_text()
