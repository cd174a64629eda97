import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.core.document.assembled_parts import ROOT, part
from tests.core.document.documents import HEAD, SERVICE, build_document
from webhook.cli import root
from webhook.errors import UserError

BAD = build_document("  slaClass: golden\n  colour: green\n")
ANY_NAMESPACE = HEAD + "services:\n- name: a\n  match: {anyNamespace: true}\n"


def run(*arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(root, ["policy", *arguments], input=text)


def test_lint_of_a_good_policy_prints_nothing_to_standard_output(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(HEAD + SERVICE)
    result = run("lint", str(path))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"{path} is valid\n"


def test_lint_prints_every_problem_with_the_files_name_and_fails(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(BAD)
    result = run("lint", str(path))
    assert result.exit_code == 1
    assert [line.split(": ")[0] for line in result.stdout.splitlines()] == [f"{path}:6:13", f"{path}:7:3"]
    assert result.stderr == f"error: {path} has 2 errors\n"


def test_lint_reads_standard_input() -> None:
    result = run("lint", "-", text=BAD)
    assert result.exit_code == 1
    assert result.stdout.startswith("-:6:13: services[0].slaClass: golden: ")


def test_lint_warns_on_standard_error_and_succeeds() -> None:
    result = run("lint", "-", text=ANY_NAMESPACE)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("warning: -:5:11: services[0].match.anyNamespace: true: ")
    assert result.stderr.endswith("- is valid, with 1 warning\n")


def test_lint_prints_json() -> None:
    found = json.loads(run("lint", "-", "-o", "json", text=BAD).stdout)
    assert found["warnings"] == []
    assert found["errors"][0]["path"] == "services[0].slaClass"
    assert found["errors"][0]["line"] == 6


@pytest.mark.parametrize("arguments", [("lint",), ("render", "--policy")])
def test_unreadable_file_is_a_user_error(arguments: tuple[str, ...], tmp_path: Path) -> None:
    result = run(*arguments, str(tmp_path / "missing.yaml"))
    assert isinstance(result.exception, UserError)
    assert "missing.yaml" in str(result.exception)
    assert result.exception.remedy


def test_schema_is_json() -> None:
    assert json.loads(run("schema").stdout)["title"] == "Podgate policy"


def test_render_shows_the_policy_with_its_sources() -> None:
    result = run("render", "payment-api", "--policy", "-", text=HEAD + SERVICE)
    assert result.exit_code == 0
    assert any(line.split() == ["slaClass:", "bronze", "#", "built", "in"] for line in result.stdout.splitlines())


def test_render_prints_json() -> None:
    found = json.loads(run("render", "--policy", "-", "-o", "json", text=HEAD + SERVICE).stdout)
    assert found["policy"]["services"][0]["slaClass"] == "bronze"
    assert found["sources"]["services[0].slaClass"] == {"origin": "built in", "line": None}
    assert found["sources"]["services[0].name"] == {"origin": "document", "line": 4}


def test_render_of_an_unknown_service_suggests_a_known_one() -> None:
    result = run("render", "payment-app", "--policy", "-", text=HEAD + SERVICE)
    assert result.exit_code == 4
    assert result.stderr == "error: - has no service payment-app: did you mean payment-api?\n"


def test_render_of_a_bad_policy_reports_its_problems() -> None:
    result = run("render", "--policy", "-", text=BAD)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: -:6:13: ")


def test_lint_checks_parts_with_their_root(tmp_path: Path) -> None:
    root, good, bad = (tmp_path / name for name in ("policy.yaml", "a.yaml", "b.yaml"))
    root.write_text(ROOT)
    good.write_text(part("a-web", "a-prod"))
    bad.write_text(part("b-web", "a-prod"))
    result = run("lint", str(root), "--part", f"a={good}", "--part", f"b={bad}")
    (line,) = result.stdout.splitlines()
    assert result.exit_code == 1
    assert line.startswith(f"{bad}:4:")
    assert "outside the namespaces of part b" in line
    assert run("lint", str(root), "--part", f"a={good}").exit_code == 0
    result = run("lint", str(root), "--part", "a")
    assert isinstance(result.exception, UserError)
    assert "write NAME=FILE, such as team-a=team-a.yaml" in str(result.exception.remedy)
