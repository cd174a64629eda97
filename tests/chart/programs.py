"""Helm and kube-score, built from their pinned, checksummed Go modules."""

from pathlib import Path

import click

from tests.cluster.go_programs import go_program
from tests.cluster.toolchain import BuildError

_FOLDER = Path(__file__).parent


def helm() -> Path:
    """Return the program; the first call builds it, which takes minutes."""
    return go_program(_FOLDER / "helm", "helm.sh/helm/v4/cmd/helm")


def kube_score() -> Path:
    """Return the program; the first call builds it."""
    return go_program(_FOLDER / "kube-score", "github.com/zegl/kube-score/cmd/kube-score")


@click.command()
def main() -> None:
    """Build the programs that are not there yet."""
    try:
        for program in (helm(), kube_score()):
            click.echo(f"{program.name} is in {program.parent}.", err=True)
    except BuildError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
