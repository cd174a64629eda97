"""ACL users of the documentation for the servers of tests."""

from pathlib import Path

CLUSTER_PASSWORD = "of-the-cluster"
"""Password of the user `podgate` on the shared Cluster."""
_EXAMPLES = Path(__file__).parents[2] / "docs/examples/redis"
_PASSWORD = ">CHANGE-ME"


def user(kind: str, password: str) -> str:
    """Return the line of `docs/examples/redis/KIND.acl` with this password."""
    line = (_EXAMPLES / f"{kind}.acl").read_text().strip()
    assert line.count(_PASSWORD) == 1, f"{kind}.acl: {_PASSWORD} must occur once"
    return line.replace(_PASSWORD, f">{password}")


def commands(kind: str) -> list[str]:
    """Return the commands that the user may run, each as `+command`."""
    return [word for word in user(kind, "none").split() if word.startswith("+")]


def acl_file(path: Path, *users: str) -> Path:
    """Write an ACL file with these users, and with `default`, the user of the tests, which may run any command."""
    path.write_text("\n".join(("user default on nopass ~* &* +@all", *users, "")))
    return path
