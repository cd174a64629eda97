"""`podgate override`: temporary changes of one service's policy."""

from collections.abc import Callable
from typing import Any

import click

from webhook.cli.options import override_options
from webhook.cli.options.command_group import format_document, output_option
from webhook.cli.options.override_options import OverridesLocation, OverrideTerms
from webhook.cli.options.server_options import complete_service_names
from webhook.commands.pages.table import format_duration, format_table
from webhook.core.overrides import Override
from webhook.core.plain_text import escape_line
from webhook.core.policy.model import Modes
from webhook.core.policy_fields import Mode
from webhook.errors import UserError

_CONCERNS = Modes.__struct_fields__


@click.command()
@click.argument("service", required=False, shell_complete=complete_service_names)
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
@override_options.term_options()
@click.option("--clear", is_flag=True, help="End all overrides in force for the service.")
@click.option("--list", "listing", is_flag=True, help="List the overrides in force.")
@output_option()
@override_options.location_options
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
        _print_overrides(override_options.list_in_force(where), output)
        return
    if service is None:
        raise click.UsageError("Missing argument 'SERVICE', or --list")
    if clear:
        override_options.clear(where, service)
        return
    changed = override_options.parse_pairs("--mode", modes, "quota=Audit")
    plain: dict[str, Any] = {"service": service}
    if quota_factor is not None:
        plain["quotaFactor"] = quota_factor
    if changed:
        plain["modes"] = changed
    if len(plain) == 1:
        raise UserError("nothing to do", "give --quota-factor or --mode, or --clear or --list")
    override_options.put(where, terms(), plain)


def _print_overrides(entries: list[Override], output: str | None) -> None:
    text = format_document([entry.encode_plain() for entry in entries], output)
    if text is not None:
        click.echo(text)
        return
    rows = [(escape_line(entry.service), _format_time_left(entry), escape_line(str(entry))) for entry in entries]
    click.echo("\n".join(format_table([("SERVICE", "LEFT", "OVERRIDE"), *rows])) if rows else "no override is in force")


def _format_time_left(entry: Override) -> str:
    return format_duration(max(0, -(-(entry.until_us - override_options.read_now_us()) // 1_000_000)))
