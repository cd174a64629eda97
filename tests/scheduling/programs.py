"""metrics-server, built from its pinned, checksummed Go module."""

from pathlib import Path

import click

from tests.cluster.go_programs import go_program
from tests.cluster.toolchain import BuildError


def metrics_server() -> Path:
    """Return the program; the first call builds it, which takes minutes."""
    return go_program(Path(__file__).with_name("metrics_server"), "sigs.k8s.io/metrics-server/cmd/metrics-server")


@click.command()
def main() -> None:
    """Build the program if it is not there yet."""
    try:
        click.echo(f"{metrics_server()}", err=True)
    except BuildError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
