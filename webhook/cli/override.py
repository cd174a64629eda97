"""`podgate override`: temporary changes of one service's policy."""

from collections.abc import Callable
from typing import Any

import click

from webhook.cli.options import override_options
from webhook.cli.options.command_group import document_text, output_option
from webhook.cli.options.override_options import OverridesLocation, OverrideTerms
from webhook.cli.options.server_options import service_names
from webhook.commands.pages.table import countdown, table
from webhook.core.overrides import Override
from webhook.core.plain_text import printable
from webhook.core.policy.model import Modes
from webhook.core.policy_spec import Mode
from webhook.errors import UserError

_CONCERNS = Modes.__struct_fields__


@click.command()
@click.argument("service", required=False, shell_complete=service_names)
@click.option(
    "--quota-factor", metavar="NUMBER", help="Multiply each limit of the service's own windows, such as 0.5 or 3."
)
@click.option(
    "--mode",
    "modes",
    multiple=True,
    metavar="CONCERN=MODE",
    help=f"Change a mode, such as quota=Audit; repeatable. CONCERN: {', '.join(_CONCERNS)}. MODE: {', '.join(Mode)}.",
)
@override_options.terms()
@click.option("--clear", is_flag=True, help="End all overrides in force for the service.")
@click.option("--list", "listing", is_flag=True, help="List the overrides in force.")
@output_option()
@override_options.location
def override(  # noqa: PLR0913  one argument an option
    *,
    service: str | None,
    quota_factor: str | None,
    modes: tuple[str, ...],
    terms: Callable[[], OverrideTerms],
    clear: bool,
    listing: bool,
    output: str | None,
    where: OverridesLocation,
) -> None:
    """Change the policy of one SERVICE for a limited time. An override ends automatically.

    \b
    podgate override payment-api --quota-factor 3 --for 1h --reason INC-1234
    podgate override payment-api --mode quota=Audit --for 1h --reason INC-1234
    podgate override --list

    Servers apply it as soon as they have read it, usually within a second.

    It is written to ConfigMap podgate-system/podgate-overrides with your kubeconfig, so with your RBAC rights and in
    the audit log of Kubernetes; or to the file that servers read with --overrides.

    Exit code: 0 success, 2 bad input, 4 no such service.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    if listing:
        _show(override_options.in_force(where), output)
        return
    if service is None:
        raise click.UsageError("Missing argument 'SERVICE', or --list")
    if clear:
        override_options.clear(where, service)
        return
    changed = override_options.pairs("--mode", modes, "quota=Audit")
    plain: dict[str, Any] = {"service": service}
    if quota_factor is not None:
        plain["quotaFactor"] = quota_factor
    if changed:
        plain["modes"] = changed
    if len(plain) == 1:
        raise UserError("nothing to do", "give --quota-factor or --mode, or --clear or --list")
    override_options.put(where, terms(), plain)


def _show(entries: list[Override], output: str | None) -> None:
    text = document_text([entry.plain() for entry in entries], output)
    if text is not None:
        click.echo(text)
        return
    rows = [(printable(entry.service), _left(entry), printable(str(entry))) for entry in entries]
    click.echo("\n".join(table([("SERVICE", "LEFT", "OVERRIDE"), *rows])) if rows else "no override is in force")


def _left(entry: Override) -> str:
    return countdown(max(0, -(-(entry.until_us - override_options.now_us()) // 1_000_000)))
