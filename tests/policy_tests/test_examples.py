"""The tests in docs/examples hold, and the documents quote them."""

import re

import pytest

from tests.cli.command_runner import podgate
from tests.cli.documented_commands import ROOT


def test_all_cases_of_the_examples_hold() -> None:
    done = podgate("test", ROOT / "docs" / "examples")
    assert done.code == 0, done.out
    assert " ok\n" in done.err


@pytest.mark.parametrize(("page", "start"), [("test.md", "apiVersion: podgate"), ("migration.md", "- name: ")])
def test_snippets_of_a_page_are_parts_of_the_examples(page: str, start: str) -> None:
    examples = [path.read_text() for path in (ROOT / "docs" / "examples").rglob("*.yaml")]
    text = (ROOT / "docs" / page).read_text()
    snippets = re.findall(rf"^```yaml\n({start}.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert snippets
    assert [snippet for snippet in snippets if not any(snippet in example for example in examples)] == []
