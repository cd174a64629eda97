"""The users of the documentation, for servers that have no others but the tests' own."""

from pathlib import Path

CLUSTER_PASSWORD = "of-the-cluster"
"""Of `podgate` on the Cluster that tests share."""
_EXAMPLES = Path(__file__).parents[2] / "docs/examples/redis"
_PASSWORD = ">CHANGE-ME"


def user(kind: str, password: str) -> str:
    """Return the line of `docs/examples/redis/KIND.acl` with a password of its own."""
    line = (_EXAMPLES / f"{kind}.acl").read_text().strip()
    assert line.count(_PASSWORD) == 1, f"{kind}.acl: where is the password?"
    return line.replace(_PASSWORD, f">{password}")


def commands(kind: str) -> list[str]:
    """Return what that user may do, each as `+command`."""
    return [word for word in user(kind, "none").split() if word.startswith("+")]


def acl_file(path: Path, *users: str) -> Path:
    """Write a server's users; `default`, as whom the tests speak themselves, may do anything."""
    path.write_text("\n".join(("user default on nopass ~* &* +@all", *users, "")))
    return path
