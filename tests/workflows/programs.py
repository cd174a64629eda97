"""actionlint, built from its pinned, checksummed Go module."""

from pathlib import Path

from tests.cluster.go_programs import go_program


def actionlint() -> Path:
    """Return the path of the program."""
    return go_program(Path(__file__).with_name("actionlint"), "github.com/rhysd/actionlint/cmd/actionlint")
