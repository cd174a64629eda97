"""Every file in `bad/` is named after its mistake; its `.expected` contains the lines that `policy lint` prints.

REFRESH_EXPECTED=1 writes the `.expected` files anew: read the difference before it is kept.
"""

import os
from pathlib import Path

import pytest

from webhook.core.document import DocumentError, Purpose, load

HERE = Path(__file__).parent
BAD = sorted((HERE / "bad").glob("*.yaml"))
GOOD = sorted((HERE / "good").glob("*.yaml"))
REFRESH = os.environ.get("REFRESH_EXPECTED") == "1"


def read_expected_lines(document: Path, found: tuple[str, ...]) -> tuple[str, ...]:
    expected_file = document.with_suffix(".expected")
    if REFRESH:
        if found:
            expected_file.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        else:
            expected_file.unlink(missing_ok=True)
    return tuple(expected_file.read_text(encoding="utf-8").splitlines()) if expected_file.exists() else ()


@pytest.mark.parametrize("document", BAD, ids=lambda path: path.stem)
def test_bad_policy_has_exactly_the_expected_problems(document: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        load(document.read_bytes(), Purpose.LINT)
    found = tuple(str(problem) for problem in caught.value.problems)
    assert found
    assert found == read_expected_lines(document, found)


@pytest.mark.parametrize("document", GOOD, ids=lambda path: path.stem)
def test_good_policy_has_exactly_the_expected_warnings(document: Path) -> None:
    found = tuple(str(warning) for warning in load(document.read_bytes(), Purpose.LINT).warnings)
    assert found == read_expected_lines(document, found)


def test_each_expected_file_has_its_document() -> None:
    surplus = [
        path.name for path in (*HERE.glob("bad/*"), *HERE.glob("good/*")) if not path.with_suffix(".yaml").exists()
    ]
    assert surplus == []


def test_there_are_at_least_thirty_bad_policies() -> None:
    assert len(BAD) >= 30


@pytest.mark.parametrize("document", BAD, ids=lambda path: path.stem)
def test_problem_has_a_line_and_column_of_the_document(document: Path) -> None:
    raw = document.read_bytes()
    lines = raw.decode("utf-8", errors="replace").split("\n")
    with pytest.raises(DocumentError) as caught:
        load(raw, Purpose.LINT)
    for problem in caught.value.problems:
        assert 1 <= problem.line <= len(lines)
        assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1
        assert problem.path
        assert problem.value
        assert problem.reason
        assert problem.remedy
        assert "\n" not in str(problem)
