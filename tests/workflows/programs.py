"""actionlint, built once from its pinned, checksummed module into the cache outside the tree."""

import hashlib
from pathlib import Path

from tests.cluster.binaries import cache
from tests.cluster.toolchain import build, go, locked

MODULE = Path(__file__).with_name("actionlint")


def actionlint() -> Path:
    """Return the path of the program."""
    digest = hashlib.sha256(b"\0".join((MODULE / name).read_bytes() for name in ("go.mod", "go.sum"))).hexdigest()[:16]
    path = cache() / f"actionlint-{digest}" / "actionlint"
    with locked(path.parent):
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            build(go(cache()), MODULE, "github.com/rhysd/actionlint/cmd/actionlint", path)
    return path
