"""`python -m tests.image`: install the programs that build an image, and make its base; both are kept."""

import click

from tests.cluster.toolchain import BuildError
from tests.image import base, programs


@click.command()
def main() -> None:
    """Prepare this machine for tests of the image."""
    try:
        programs.install()
        click.echo(f"The base is in {base.context()}.", err=True)
    except BuildError as error:
        raise click.ClickException(str(error)) from None


main()
