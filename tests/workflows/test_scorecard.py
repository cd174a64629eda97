"""What OpenSSF Scorecard reads of a repository, as far as files can show it. Settings are in CONTRIBUTING.md."""

import ast
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DANGEROUS_EVENTS = {"pull_request_target", "workflow_run", "issue_comment", "issues"}
"""They run with rights, or secrets, on what anybody has written."""
BINARY_SUFFIXES = {".so", ".a", ".o", ".dll", ".exe", ".jar", ".class", ".pyc", ".pyd", ".wasm", ".whl", ".deb", ".bin"}
EXECUTABLE_BEGINNINGS = (b"\x7fELF", b"MZ", b"\xca\xfe\xba\xbe", b"\xcf\xfa\xed\xfe", b"!<arch>")


def list_tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def read_events(path: Path) -> set[str]:
    document: dict[Any, Any] = yaml.safe_load(path.read_text())
    return set(document[True])  # YAML reads `on` as a boolean


def read_dependabot() -> list[dict[str, Any]]:
    updates: list[dict[str, Any]] = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]
    return updates


def test_no_executable_is_tracked() -> None:
    found = [path for path in list_tracked() if path.suffix in BINARY_SUFFIXES]
    for path in list_tracked():
        with path.open("rb") as file:
            if file.read(8).startswith(EXECUTABLE_BEGINNINGS):
                found.append(path)
    assert found == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_no_workflow_runs_with_rights_on_what_anybody_writes(path: Path) -> None:
    assert read_events(path) & DANGEROUS_EVENTS == set()


def test_each_change_is_tested_and_analysed() -> None:
    for name in ("test", "codeql"):
        assert read_events(ROOT / f".github/workflows/{name}.yml") >= {"push", "pull_request"}
    assert "schedule" in read_events(ROOT / ".github/workflows/codeql.yml"), "rules change, too"


def test_every_kind_of_dependency_is_watched() -> None:
    updates = read_dependabot()
    assert {update["package-ecosystem"] for update in updates} == {"github-actions", "docker", "pip", "gomod"}
    [modules] = [update["directories"] for update in updates if update["package-ecosystem"] == "gomod"]
    there = {f"/{path.parent.relative_to(ROOT)}" for path in list_tracked() if path.name == "go.mod"}
    assert set(modules) == there


def test_whatever_is_installed_is_pinned_by_hash() -> None:
    """Or comes from files that are: a folder of wheels, the sources."""
    texts = {name: (ROOT / name).read_text().replace("\\\n", " ") for name in ("Makefile", "Dockerfile")}
    commands = [
        (name, command)
        for name, text in texts.items()
        for line in text.splitlines()
        if not line.lstrip().startswith("#")
        for command in re.split(r"&&|\|\||;", line)
        if re.search(r"\bpip (install|download|wheel)\b", command)
    ]
    assert len(commands) >= 4
    options = ("--require-hashes", "--no-index", "--no-build-isolation")
    assert [command for command in commands if not any(option in command[1] for option in options)] == []


def test_the_license_is_the_declared_one() -> None:
    assert (ROOT / "LICENSE").read_text().split()[:4] == ["Apache", "License", "Version", "2.0,"]


def test_the_security_policy_says_where_to_report_and_when_an_answer_comes() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    section = text.partition("## Reporting\n")[2].partition("\n## ")[0]
    assert "security advisory" in section
    assert re.search(r"within \w+ (working )?days", section)
    assert "## Supported versions\n" in text


def test_a_fuzzer_runs() -> None:
    """It is known by its import."""
    nodes = ast.walk(ast.parse((ROOT / "tests/fuzz/guided_process.py").read_text()))
    assert any(isinstance(node, ast.Import) and node.names[0].name == "atheris" for node in nodes)


def test_a_release_has_signed_provenance() -> None:
    steps = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]["release"]["steps"]
    [provenance] = [step for step in steps if "attest-build-provenance@" in step.get("uses", "")]
    [release] = [step for step in steps if step.get("run") == "make release"]
    assert release["env"]["BUNDLE"] == f"${{{{ steps.{provenance['id']}.outputs.bundle-path }}}}"
    assert "dist/podgate-$(VERSION).intoto.jsonl" in (ROOT / "Makefile").read_text()
