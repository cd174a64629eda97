"""A planted defect: a replacement in one file of the product, and who must notice it in which history."""

from pathlib import Path
from typing import NamedTuple


class Defect(NamedTuple):
    """`text` stands once in `file` and becomes `planted`. `stage`: a schedule of the light stage, or a virtual one."""

    name: str
    stage: str
    checkers: frozenset[str]
    """At least one of them must catch it."""
    file: str
    text: str
    planted: str
    past: str = ""
    """The defect of the past that it is like: words of the changelog or of a commit."""

    def apply(self, tree: Path) -> None:
        """Plant it in a tree. ValueError: the text does not stand there once."""
        path = tree / self.file
        before = path.read_text()
        if before.count(self.text) != 1:
            count = before.count(self.text)
            raise ValueError(f"{self.name}: {self.file}: the text stands there {count} times: {self.text}")
        path.write_text(before.replace(self.text, self.planted))


def of(*names: str) -> frozenset[str]:
    """Return names of checkers."""
    return frozenset(names)
