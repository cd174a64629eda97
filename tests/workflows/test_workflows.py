"""The workflows in .github/workflows: valid, pinned, with few rights, and without logic of their own."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.go_programs import NO_COLLECTIONS
from tests.workflows.programs import actionlint

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RIGHTS = {
    "codeql": {"security-events"},
    "image": {"packages", "id-token", "attestations"},
    "release": {"contents", "id-token", "attestations", "packages"},
    "scorecard": {"security-events"},
}
"""What jobs of a workflow may write."""

_PINNED = re.compile(r"uses: (?:\./\.github/workflows/[\w.-]+\.yml|[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)$")
_RUN = re.compile(r"(?:sudo --preserve-env=PATH )?make (?:--silent )?(?P<target>[\w./-]+)(?: [A-Z]+=[\w./-]+)*")


def load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    return document


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in load(path)["jobs"].values() for step in job.get("steps", [])]


def complaints(*paths: Path) -> str:
    # Without programs that a machine may have by chance.
    command = [actionlint(), "-no-color", "-oneline", "-shellcheck=", "-pyflakes=", *paths]
    environment = {**os.environ, **NO_COLLECTIONS}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout


def test_there_is_a_workflow_for_each_purpose() -> None:
    assert [path.stem for path in WORKFLOWS] == ["canary", "codeql", "image", "release", "scorecard", "test"]


def test_actionlint_finds_nothing() -> None:
    assert complaints(*WORKFLOWS) == ""


def test_actionlint_finds_what_is_wrong(tmp_path: Path) -> None:
    planted = tmp_path / "test.yml"
    planted.write_text((ROOT / ".github" / "workflows" / "test.yml").read_text().replace("timeout-minutes", "timeout"))
    assert 'unexpected key "timeout"' in complaints(planted)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_by_commit(path: Path) -> None:
    used = re.findall(r"uses: .*", path.read_text())
    assert used
    assert [line for line in used if not _PINNED.fullmatch(line)] == []


def test_an_action_has_one_version() -> None:
    used = {line for path in WORKFLOWS for line in re.findall(r"uses: (\S+@.*)", path.read_text())}
    assert len(used) == len({line.partition("@")[0] for line in used})


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_rights_are_reading_only_but_of_the_jobs_that_publish(path: Path) -> None:
    document = load(path)
    assert document["permissions"] == {"contents": "read"}
    written = {
        name
        for job in document["jobs"].values()
        for name, right in job.get("permissions", {}).items()
        if right == "write"
    }
    assert written == RIGHTS.get(path.stem, set())
    kept = [step for step in steps(path) if "actions/checkout@" in step.get("uses", "")]
    assert all(step["with"]["persist-credentials"] is False for step in kept)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_step_runs_one_make_target_and_no_expression(path: Path) -> None:
    """Expressions in a command would run what a branch's or tag's name contains."""
    makefile = (ROOT / "Makefile").read_text()
    for command in (step["run"] for step in steps(path) if "run" in step):
        match = _RUN.fullmatch(command.removesuffix(' >> "$GITHUB_OUTPUT"'))
        assert match is not None, command
        assert re.search(rf"^{re.escape(match['target'])}:", makefile, re.MULTILINE), command


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_secrets_are_known_to_single_steps_only(path: Path) -> None:
    document = load(path)
    jobs = document["jobs"].values()
    assert "secrets." not in str([document.get("env"), *(job.get("env") for job in jobs)])
    in_steps = sum(str(step).count("secrets.") for step in steps(path))
    assert path.read_text().count("secrets.") == in_steps


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_job_ends_and_runs_of_one_ref_do_not_overlap(path: Path) -> None:
    document = load(path)
    assert document["concurrency"]["group"].startswith(f"{path.stem}-${{{{ ")
    assert all("timeout-minutes" in job for job in document["jobs"].values() if "uses" not in job)


def test_no_workflow_names_a_registry() -> None:
    for path in WORKFLOWS:
        assert re.findall(r"\b[\w-]+\.(?:io|com|org|dev)\b", path.read_text()) == [], path.name
