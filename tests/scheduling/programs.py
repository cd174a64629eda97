"""metrics-server, built from its pinned, checksummed Go module, and node_exporter, of Debian's package."""

import shutil
from pathlib import Path

import click

from tests.cluster.debian_package import unpack_debian_package
from tests.cluster.go_programs import go_program
from tests.cluster.toolchain import BuildError

_EXPORTER = "prometheus-node-exporter"


def metrics_server() -> Path:
    """Return the program; the first call builds it, which takes minutes."""
    return go_program(Path(__file__).with_name("metrics_server"), "sigs.k8s.io/metrics-server/cmd/metrics-server")


def node_exporter() -> Path:
    """Return the program on the PATH, else Debian's; the first call downloads it."""
    on_path = shutil.which(_EXPORTER) or shutil.which("node_exporter")
    return (
        Path(on_path) if on_path else unpack_debian_package(_EXPORTER, f"install {_EXPORTER}") / "usr/bin" / _EXPORTER
    )


@click.command()
def main() -> None:
    """Get the programs that are not there yet."""
    try:
        click.echo(f"{metrics_server()}\n{node_exporter()}", err=True)
    except BuildError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
