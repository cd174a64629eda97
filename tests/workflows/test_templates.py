"""Templates for contributors: issue forms, the pull request template, code owners, and the check of commit subjects."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
TYPES = {"markdown", "textarea", "input", "dropdown", "checkboxes"}


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_there_are_forms_for_bugs_and_features() -> None:
    assert [form.stem for form in FORMS] == ["bug", "config", "feature"]


@pytest.mark.parametrize("form", [form for form in FORMS if form.stem != "config"], ids=lambda form: form.stem)
def test_a_form_has_what_github_requires(form: Path) -> None:
    document = load(form)
    assert document.keys() == {"name", "description", "labels", "body"}
    ids = [element["id"] for element in document["body"] if element["type"] != "markdown"]
    assert len(ids) == len(set(ids))
    for element in document["body"]:
        assert element["type"] in TYPES
        assert element["attributes"]["value" if element["type"] == "markdown" else "label"]


@pytest.mark.parametrize(
    "path", re.findall(r"^# (/[\w./-]+)$", (ROOT / ".github/CODEOWNERS").read_text(), re.MULTILINE)
)
def test_code_owners_name_existing_paths(path: str) -> None:
    assert (ROOT / path.removeprefix("/")).exists()


@pytest.mark.parametrize(
    ("message", "is_accepted"),
    [
        ("store: refund local share only for Pods it counted\n\nThe reason.\n", True),
        ("check: name it", True),
        ("core/breaker: hold a trip\n", True),
        (f"docs: {'x' * 66}\n", True),
        (f"docs: {'x' * 67}\n", False),
        ("Release the place of a refunded Pod\n\nstore: not the subject\n", False),
        ("docs:no space\n", False),
        ("\ndocs: in the second line\n", False),
    ],
)
def test_commit_subjects_are_checked(message: str, is_accepted: bool) -> None:  # noqa: FBT001  a parameter of the test
    (hook,) = [hook for hook in load(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"] if "stages" in hook]
    assert (re.search(hook["entry"], message, re.MULTILINE | re.DOTALL) is not None) is is_accepted
