"""Kubeconfig of a command: the files, as kubectl reads those of KUBECONFIG, and the context."""

import os
from dataclasses import dataclass
from pathlib import Path

DEFAULT = Path("~/.kube/config")


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """Files to merge, of which the first entry of a name wins; absent files are left out.

    Without `context` the current context applies: that of the first file that sets one.
    """

    files: tuple[Path, ...]
    context: str | None = None

    @classmethod
    def from_text(cls, text: str | None, context: str | None = None) -> "Kubeconfig":
        """Return the files of a list such as KUBECONFIG's; kubectl's default for an empty list."""
        names = dict.fromkeys(name for name in (text or "").split(os.pathsep) if name)
        return cls(tuple(map(Path, names)) or (DEFAULT.expanduser(),), context or None)

    def exists(self) -> bool:
        """Return whether any of the files exists, even if it cannot be read."""
        return any(map(_exists, self.files))

    def __str__(self) -> str:
        return os.pathsep.join(map(str, self.files))


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True
