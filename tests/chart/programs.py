"""Helm, built once from its pinned, checksummed Go module into the cache outside the tree."""

import hashlib
import platform
from pathlib import Path

import click

from tests.cluster.binaries import cache
from tests.cluster.toolchain import BUILD_FLAGS, BuildError, build, go, locked

TOOLS = Path(__file__).with_name("tools")
_PACKAGE = "helm.sh/helm/v4/cmd/helm"


def helm() -> Path:
    """Return the program; the first call builds it, which takes minutes."""
    files = [(TOOLS / name).read_bytes() for name in ("go.mod", "go.sum")]
    machine = repr((BUILD_FLAGS, platform.system(), platform.machine())).encode()
    digest = hashlib.sha256(b"\0".join([*files, machine])).hexdigest()[:16]
    path = cache() / f"helm-{digest}" / "helm"
    if not path.exists():
        with locked(path.parent):
            if not path.exists():
                path.parent.mkdir(exist_ok=True)
                click.echo("building helm ...", err=True)
                build(go(cache()), TOOLS, _PACKAGE, path)
    return path


@click.command()
def main() -> None:
    """Build Helm if it is not there yet."""
    try:
        click.echo(f"Helm is in {helm().parent}.", err=True)
    except BuildError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
