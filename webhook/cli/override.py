"""`podgate override`: hands on a service for a time, with a reason."""

import json
import sys
from collections.abc import Callable
from typing import Any

import click

from webhook.cli.options import override_options
from webhook.cli.options.override_options import Span, Where
from webhook.cli.status import countdown, table
from webhook.core.overrides import Override
from webhook.errors import UserError


@click.command()
@click.argument("service", required=False)
@click.option("--quota-factor", metavar="NUMBER", help="Scale each limit of its own windows, such as 0.5 or 3.")
@click.option(
    "--mode", "modes", multiple=True, metavar="CONCERN=MODE", help="Another mode, such as quota=Audit; repeatable."
)
@override_options.timing()
@click.option("--clear", is_flag=True, help="End what is in force for the service.")
@click.option("--list", "listing", is_flag=True, help="Show what is in force.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), help="[default: table on a terminal, json elsewhere]"
)
@override_options.placing
def override(  # noqa: PLR0913  one argument an option
    *,
    service: str | None,
    quota_factor: str | None,
    modes: tuple[str, ...],
    span: Callable[[], Span],
    clear: bool,
    listing: bool,
    output: str | None,
    where: Where,
) -> None:
    """Override the policy for one SERVICE, for a time. It ends by itself.

    Servers act on it as soon as they have read it, usually within a second.

    Written to ConfigMap podgate-system/podgate-overrides with your own kubeconfig, so with your own rights and in
    Kubernetes' own audit; or to a file that servers were given with --overrides.

    Exits 0, 2 for a mistake, 4 if there is no such service.
    """
    if listing:
        _show(override_options.in_force(where), output)
        return
    if service is None:
        raise click.UsageError("Missing argument 'SERVICE', or --list")
    if clear:
        override_options.clear(where, service)
        return
    told = override_options.pairs("--mode", modes, "quota=Audit")
    plain: dict[str, Any] = {"service": service}
    if quota_factor is not None:
        plain["quotaFactor"] = quota_factor
    if told:
        plain["modes"] = told
    if len(plain) == 1:
        raise UserError("nothing to do", "give --quota-factor or --mode, or --clear or --list")
    override_options.put(where, span(), plain)


def _show(entries: list[Override], output: str | None) -> None:
    if output == "json" or (output is None and not sys.stdout.isatty()):
        click.echo(json.dumps([entry.plain() for entry in entries], indent=2, ensure_ascii=False))
        return
    rows = [(entry.service, _left(entry), str(entry)) for entry in entries]
    click.echo("\n".join(table([("SERVICE", "LEFT", "OVERRIDE"), *rows])) if rows else "no override is in force")


def _left(entry: Override) -> str:
    return countdown(max(0, -(-(entry.until_us - override_options.now_us()) // 1_000_000)))
