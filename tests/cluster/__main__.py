"""`python -m tests.cluster`: build the programs of the control plane; start and stop a persistent cluster."""

import shlex
from pathlib import Path

import click

from tests.cluster import persistent_cluster
from tests.cluster.admission_configuration import Caller
from tests.cluster.binaries import Binaries, binaries
from tests.cluster.kwok import NODES
from tests.cluster.toolchain import BuildError

ROOT = Path(__file__).parents[2]

_folder = click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=ROOT / ".build" / "controlplane",
    show_default=".build/controlplane",
    help="where the cluster keeps what it writes; deleted in the end",
)


def _webhook(command: click.decorators.FC) -> click.decorators.FC:
    """Add the options for the API server's credentials to webhooks."""
    path = click.Path(path_type=Path, dir_okay=False)
    for name, default, text in (
        ("--token", "pki/token", "the token file that webhooks are called with, read again every minute"),
        ("--key", "pki/kube-apiserver.key", "its key"),
        ("--certificate", "pki/kube-apiserver.crt", "the client certificate that webhooks are called with"),
    ):
        command = click.option(name, type=path, default=default, show_default=True, help=text)(command)
    return click.option("--port", default=8443, show_default=True, help="the port that a webhook has on 127.0.0.1")(
        command
    )


@click.group()
def main() -> None:
    """Build, start and end the control plane of the tests."""


@main.command()
def build() -> None:
    """Build the programs that are not there yet; a first time takes minutes."""
    click.echo(f"The control plane's programs are in {_programs().kwok.parent}.", err=True)


@main.command()
@_folder
@_webhook
def up(folder: Path, port: int, certificate: Path, key: Path, token: Path) -> None:
    """Start a cluster that stays until `down`."""
    folder = folder.absolute()
    programs = _programs()
    options = {"--port": str(port), "--certificate": certificate, "--key": key, "--token": token}
    is_new = persistent_cluster.up(folder, *(str(part) for option in options.items() for part in option))
    click.echo(
        "A control plane is up." if is_new else "A control plane was up already, and is left as it is.", err=True
    )
    click.echo(f"export KUBECONFIG={shlex.quote(str(folder / 'admin.kubeconfig'))}")
    click.echo(f'export PATH={shlex.quote(str(programs.kubectl.parent))}:"$PATH"')
    if is_new:
        click.echo(
            f"It calls webhooks on 127.0.0.1:{port}, by URL, with {certificate} and {token}.\n"
            f"Its Nodes are {', '.join(node['metadata']['name'] for node in NODES)}.",
            err=True,
        )
    click.echo("make controlplane-down ends it.", err=True)


@main.command()
@_folder
def down(folder: Path) -> None:
    """End the cluster, and leave nothing of it."""
    was_up = persistent_cluster.stop(folder.absolute())
    click.echo("The control plane is down." if was_up else "No control plane is up.", err=True)


@main.command(hidden=True)
@_folder
@_webhook
def hold(folder: Path, port: int, certificate: Path, key: Path, token: Path) -> None:
    """Hold a cluster until SIGTERM: what `up` starts."""
    persistent_cluster.hold(folder.absolute(), {port: Caller(certificate, key, token)})


def _programs() -> Binaries:
    try:
        return binaries()
    except BuildError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
