"""The pages about shares: what they quote is what the commands say of their examples."""

import re

import pytest

from tests.cli.command_runner import podgate
from tests.cli.documented_commands import ROOT
from tests.core.document.documents import build_document, list_problems, list_warnings

PAGE = (ROOT / "docs" / "shares.md").read_text()
MIGRATION = (ROOT / "docs" / "shares-migration.md").read_text()
EXAMPLES = ROOT / "docs" / "examples" / "shares"
STANZAS = re.findall(r"^```yaml\n(placement:.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("stanza", STANZAS)
def test_a_stanza_of_the_page_has_neither_mistakes_nor_warnings(stanza: str) -> None:
    document = build_document("".join(f"  {line}\n" for line in stanza.splitlines()))
    assert (list_problems(document), list_warnings(document)) == ([], [])


@pytest.mark.parametrize("name", ["policy", "from-others-policy", "tutorial-policy"])
def test_an_example_has_neither_mistakes_nor_warnings(name: str) -> None:
    done = podgate("policy", "lint", EXAMPLES / f"{name}.yaml")
    assert (done.code, done.out) == (0, "")
    assert "warning" not in done.err


def list_splits(manifest: str, policy: str) -> list[str]:
    done = podgate("review", EXAMPLES / f"{manifest}.yaml", "--policy", EXAMPLES / f"{policy}.yaml")
    assert done.code == 0, done.err
    assert "# warning" not in done.out
    return re.findall(r"^# shares: .*$", done.out, re.MULTILINE)


def test_the_split_of_the_page_is_that_of_its_example() -> None:
    [split] = list_splits("deployment", "policy")
    assert f"```\n{split}\n```" in PAGE
    assert list_splits("deployment", "tutorial-policy") == list_splits("job", "policy") == [split]


def test_the_examples_from_others_are_divided_as_their_originals_are() -> None:
    assert list_splits("from-others", "from-others-policy") == [
        "# shares: slots 1-10: spot x8, on-demand x2",
        "# shares: slots 1-3 subset-a, 4-10: subset-b x7",
        "# shares: slots 1-2 subset-a, 3-6: subset-b x2, subset-c x2",
    ]
    assert "docs/examples/shares/from-others.yaml" in MIGRATION
